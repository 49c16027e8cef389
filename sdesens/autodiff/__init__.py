from sdesens.autodiff.check import GradientReport as GradientReport
from sdesens.autodiff.check import check_gradient as check_gradient
from sdesens.autodiff.custom import custom_gradient as custom_gradient
from sdesens.autodiff.positive import positive_sqrt as positive_sqrt
