"""The fused engine: noise, state and tangents in one compiled pass over scalars.

Bottom to top: a :mod:`~sdesens.fused.program` of scalar :mod:`~sdesens.fused.operations`, which
:mod:`~sdesens.fused.record` makes of a function of tensors; :mod:`~sdesens.fused.emit` writes it in
C++ and :mod:`~sdesens.fused.evaluate` runs it in torch, both behind :mod:`~sdesens.fused.kernel`;
:mod:`~sdesens.fused.system` differentiates a step along every direction, and
:mod:`~sdesens.fused.engine` keeps what was compiled.
"""
