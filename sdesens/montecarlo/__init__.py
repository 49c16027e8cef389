"""Monte Carlo: means over many paths and their derivatives, noise, state and tangents fused."""

from sdesens.montecarlo.estimates import Estimate as Estimate
from sdesens.montecarlo.estimates import Estimates as Estimates
from sdesens.montecarlo.executors import RayExecutor as RayExecutor
from sdesens.montecarlo.front import run as run
from sdesens.montecarlo.functionals import Functional as Functional
from sdesens.montecarlo.functionals import Integral as Integral
from sdesens.montecarlo.functionals import RunningMax as RunningMax
from sdesens.montecarlo.functionals import RunningMin as RunningMin
from sdesens.montecarlo.functionals import RunningSum as RunningSum
from sdesens.montecarlo.functionals import Survival as Survival
from sdesens.montecarlo.functionals import ValueAt as ValueAt
from sdesens.montecarlo.specification import Specification as Specification
