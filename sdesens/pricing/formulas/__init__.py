"""Closed-form prices, differentiable in every argument."""

from sdesens.pricing.formulas.average import (
    arithmetic_average_moments as arithmetic_average_moments,
)
from sdesens.pricing.formulas.average import geometric_asian_call as geometric_asian_call
from sdesens.pricing.formulas.average import geometric_asian_put as geometric_asian_put
from sdesens.pricing.formulas.barrier import barrier_option as barrier_option
from sdesens.pricing.formulas.black import asset_digital_call as asset_digital_call
from sdesens.pricing.formulas.black import asset_digital_put as asset_digital_put
from sdesens.pricing.formulas.black import black_call as black_call
from sdesens.pricing.formulas.black import black_put as black_put
from sdesens.pricing.formulas.black import cash_digital_call as cash_digital_call
from sdesens.pricing.formulas.black import cash_digital_put as cash_digital_put
from sdesens.pricing.formulas.black import forward_value as forward_value
from sdesens.pricing.formulas.heston import heston_call as heston_call
from sdesens.pricing.formulas.heston import heston_digital_call as heston_digital_call
from sdesens.pricing.formulas.heston import heston_digital_put as heston_digital_put
from sdesens.pricing.formulas.heston import heston_put as heston_put
from sdesens.pricing.formulas.heston import variance_swap_rate as variance_swap_rate
from sdesens.pricing.formulas.jumps import merton_call as merton_call
from sdesens.pricing.formulas.jumps import merton_digital_call as merton_digital_call
from sdesens.pricing.formulas.jumps import merton_digital_put as merton_digital_put
from sdesens.pricing.formulas.jumps import merton_put as merton_put
from sdesens.pricing.formulas.lognormal import (
    lognormal_asset_digital_call as lognormal_asset_digital_call,
)
from sdesens.pricing.formulas.lognormal import (
    lognormal_asset_digital_put as lognormal_asset_digital_put,
)
from sdesens.pricing.formulas.lognormal import lognormal_call as lognormal_call
from sdesens.pricing.formulas.lognormal import lognormal_digital_call as lognormal_digital_call
from sdesens.pricing.formulas.lognormal import lognormal_digital_put as lognormal_digital_put
from sdesens.pricing.formulas.lognormal import lognormal_put as lognormal_put
from sdesens.pricing.formulas.multi import best_of_call as best_of_call
from sdesens.pricing.formulas.multi import exchange_option as exchange_option
from sdesens.pricing.formulas.multi import worst_of_call as worst_of_call
from sdesens.pricing.formulas.normal import normal_asset_digital_call as normal_asset_digital_call
from sdesens.pricing.formulas.normal import normal_asset_digital_put as normal_asset_digital_put
from sdesens.pricing.formulas.normal import normal_call as normal_call
from sdesens.pricing.formulas.normal import normal_digital_call as normal_digital_call
from sdesens.pricing.formulas.normal import normal_digital_put as normal_digital_put
from sdesens.pricing.formulas.normal import normal_put as normal_put
from sdesens.pricing.formulas.path import fixed_lookback_call as fixed_lookback_call
from sdesens.pricing.formulas.path import fixed_lookback_put as fixed_lookback_put
from sdesens.pricing.formulas.path import floating_lookback_call as floating_lookback_call
from sdesens.pricing.formulas.path import floating_lookback_put as floating_lookback_put
from sdesens.pricing.formulas.rates import cir_bond as cir_bond
from sdesens.pricing.formulas.rates import vasicek_bond as vasicek_bond
