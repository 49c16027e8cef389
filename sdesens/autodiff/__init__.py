from sdesens.autodiff.check import GradientReport as GradientReport
from sdesens.autodiff.check import check_gradient as check_gradient
from sdesens.autodiff.custom import custom_gradient as custom_gradient
from sdesens.autodiff.dedup import distinct as distinct
from sdesens.autodiff.dedup import unique_map as unique_map
from sdesens.autodiff.dedup import unique_vjp as unique_vjp
from sdesens.autodiff.isolate import isolate_samples as isolate_samples
from sdesens.autodiff.mixture import (
    truncated_mixture_log_normalizer as truncated_mixture_log_normalizer,
)
from sdesens.autodiff.mixture import truncated_mixture_weights as truncated_mixture_weights
from sdesens.autodiff.per_sample import per_sample_grad as per_sample_grad
from sdesens.autodiff.per_sample import per_sample_jacobian as per_sample_jacobian
from sdesens.autodiff.per_sample_params import per_sample_param_grad as per_sample_param_grad
from sdesens.autodiff.positive import positive_sqrt as positive_sqrt
