import warnings

from torch.autograd import forward_ad

# torch 2.13 warns of its own use of torch.jit.script the first time that forward mode is entered.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    with forward_ad.dual_level():
        forward_ad._maybe_load_decompositions()
