"""Payoffs: functions of the path that say how smooth they are, and at which dates."""

from sdesens.pricing.payoffs.barrier import Barrier as Barrier
from sdesens.pricing.payoffs.base import Asset as Asset
from sdesens.pricing.payoffs.base import Payoff as Payoff
from sdesens.pricing.payoffs.custom import CustomPayoff as CustomPayoff
from sdesens.pricing.payoffs.custom import payoff as payoff
from sdesens.pricing.payoffs.multi import Basket as Basket
from sdesens.pricing.payoffs.multi import BestOf as BestOf
from sdesens.pricing.payoffs.multi import Exchange as Exchange
from sdesens.pricing.payoffs.multi import WorstOf as WorstOf
from sdesens.pricing.payoffs.path import Asian as Asian
from sdesens.pricing.payoffs.path import Lookback as Lookback
from sdesens.pricing.payoffs.path import VarianceSwap as VarianceSwap
from sdesens.pricing.payoffs.vanilla import Call as Call
from sdesens.pricing.payoffs.vanilla import Digital as Digital
from sdesens.pricing.payoffs.vanilla import Forward as Forward
from sdesens.pricing.payoffs.vanilla import Put as Put
from sdesens.pricing.payoffs.vanilla import ZeroCouponBond as ZeroCouponBond
