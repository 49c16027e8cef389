from sdesens.autodiff.check import GradientReport as GradientReport
from sdesens.autodiff.check import check_gradient as check_gradient
from sdesens.autodiff.custom import custom_gradient as custom_gradient
from sdesens.autodiff.dedup import distinct as distinct
from sdesens.autodiff.dedup import unique_map as unique_map
from sdesens.autodiff.dedup import unique_vjp as unique_vjp
from sdesens.autodiff.positive import positive_sqrt as positive_sqrt
