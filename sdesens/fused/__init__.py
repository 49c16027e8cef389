"""The fused engine: noise, state and tangents in one compiled pass over scalars.

Bottom to top: a :mod:`~sdesens.fused.program` of scalar :mod:`~sdesens.fused.operations`, made from
a function of tensors by :mod:`~sdesens.fused.record` and its :mod:`~sdesens.fused.rules`. In C++ by
:mod:`~sdesens.fused.emit`, or in torch by :mod:`~sdesens.fused.evaluate`, it is run by
:mod:`~sdesens.fused.kernel`. :mod:`~sdesens.fused.system` differentiates a step along every
direction, and :mod:`~sdesens.fused.engine` keeps what was compiled.
"""
