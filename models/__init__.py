"""Ready models: one file each, with equation, reference, units and closed-form tangents."""

from sdesens.models.black_scholes import BlackScholes as BlackScholes
from sdesens.models.cev import CEV as CEV
from sdesens.models.cir import CIR as CIR
from sdesens.models.geometric_brownian_motion import (
    GeometricBrownianMotion as GeometricBrownianMotion,
)
from sdesens.models.heston import Heston as Heston
from sdesens.models.local_vol import LocalVolatility as LocalVolatility
from sdesens.models.merton import MertonJumpDiffusion as MertonJumpDiffusion
from sdesens.models.multi_asset import MultiAssetBlackScholes as MultiAssetBlackScholes
from sdesens.models.neural import NeuralSDE as NeuralSDE
from sdesens.models.ornstein_uhlenbeck import OrnsteinUhlenbeck as OrnsteinUhlenbeck
from sdesens.models.sabr import SABR as SABR
from sdesens.models.vasicek import Vasicek as Vasicek
