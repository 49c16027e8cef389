"""Figures of results: each function takes ``ax=`` and returns it, and never touches pyplot."""

from sdesens.plots._style import PALETTE as PALETTE
from sdesens.plots._style import style as style
from sdesens.plots.fans import path_fan as path_fan
from sdesens.plots.fans import tangent_fan as tangent_fan
from sdesens.plots.greeks import estimator_variances as estimator_variances
from sdesens.plots.greeks import greek_profile as greek_profile
from sdesens.plots.heatmap import sensitivity_heatmap as sensitivity_heatmap
from sdesens.plots.overlay import modes as modes
from sdesens.plots.slopes import Slope as Slope
from sdesens.plots.slopes import convergence as convergence
from sdesens.plots.slopes import fitted_slope as fitted_slope
