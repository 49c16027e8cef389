"""sdesens: sensitivities of stochastic differential equations, in PyTorch."""

from sdesens.brownian import BrownianPath as BrownianPath
from sdesens.errors import AccuracyWarning as AccuracyWarning
from sdesens.errors import CheckpointError as CheckpointError
from sdesens.errors import CheckpointWarning as CheckpointWarning
from sdesens.errors import CoupledSamplesError as CoupledSamplesError
from sdesens.errors import NonFiniteError as NonFiniteError
from sdesens.errors import NotLipschitzError as NotLipschitzError
from sdesens.errors import OffGridError as OffGridError
from sdesens.errors import ShardError as ShardError
from sdesens.errors import UncompiledWarning as UncompiledWarning
from sdesens.errors import UnsupportedError as UnsupportedError
from sdesens.errors import WorkerMismatchError as WorkerMismatchError
from sdesens.pathwise import ModeComparison as ModeComparison
from sdesens.pathwise import Sensitivities as Sensitivities
from sdesens.pathwise import compare_modes as compare_modes
from sdesens.pathwise import fuse as fuse
from sdesens.pathwise import sensitivities as sensitivities
from sdesens.pricing import greeks as greeks
from sdesens.sde import SDE as SDE

__version__ = "0.1.0"
