// Vectors of paths, their arithmetic and functions, and the normal numbers.
//
// REAL, the type of the state, is defined before this file is read. A value on the paths is a
// vector F of WIDTH of them; a value that all paths share is a double.

#include <ATen/cpu/vec/vec.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using Real = REAL;
using Library = at::vec::Vectorized<Real>;  // torch's vectors, for their functions
constexpr int WIDTH = Library::size();
typedef Real F __attribute__((vector_size(sizeof(Real) * WIDTH)));
typedef decltype(F{} < F{}) Mask;

inline F all(double x) { return Real(x) - F{}; }
inline Mask all_if(bool x) { return Mask{} - (x ? 1 : 0); }

#define FUNCTION(name)                                                 \
  inline F v##name(F x) {                                              \
    F out;                                                             \
    Library::loadu(&x).name().store(&out);                             \
    return out;                                                        \
  }                                                                    \
  inline double v##name(double x) { return std::name(x); }

#define FUNCTION_OF_TWO(name)                                          \
  inline F v##name(F x, F y) {                                         \
    F out;                                                             \
    Library::loadu(&x).name(Library::loadu(&y)).store(&out);           \
    return out;                                                        \
  }                                                                    \
  inline double v##name(double x, double y) { return std::name(x, y); }

FUNCTION(abs) FUNCTION(sqrt) FUNCTION(exp) FUNCTION(expm1) FUNCTION(log) FUNCTION(log1p)
FUNCTION(sin) FUNCTION(cos) FUNCTION(tan) FUNCTION(asin) FUNCTION(acos) FUNCTION(atan)
FUNCTION(sinh) FUNCTION(cosh) FUNCTION(tanh) FUNCTION(erf) FUNCTION(erfc) FUNCTION(lgamma)
FUNCTION(floor) FUNCTION(ceil) FUNCTION(trunc)
FUNCTION_OF_TWO(pow) FUNCTION_OF_TWO(atan2) FUNCTION_OF_TWO(fmod)

inline F vround(F x) {
  F out;
  Library::loadu(&x).round().store(&out);
  return out;
}
inline double vround(double x) { return std::nearbyint(x); }  // half to even, as torch does

// NaN if either is, as torch does.
template <class X> inline X vmax(X a, X b) { return ((a > b) | (a != a)) ? a : b; }
template <class X> inline X vmin(X a, X b) { return ((a < b) | (a != a)) ? a : b; }

// The inverse of the normal distribution function: algorithm AS 241 of Wichura, Applied Statistics 37
// (1988). S is the type of a number in X.
template <class X, class S>
inline X inverse_normal(X p) {
#define RATIO(x, a0, a1, a2, a3, a4, a5, a6, a7, b1, b2, b3, b4, b5, b6, b7)                       \
  ((((((((S(a7) * x + S(a6)) * x + S(a5)) * x + S(a4)) * x + S(a3)) * x + S(a2)) * x + S(a1)) * x + \
    S(a0)) /                                                                                       \
   (((((((S(b7) * x + S(b6)) * x + S(b5)) * x + S(b4)) * x + S(b3)) * x + S(b2)) * x + S(b1)) * x + \
    S(1)))
  const X q = p - S(0.5), tail = vmin(p, S(1) - p);
  const X c = S(0.180625) - q * q, r = vsqrt(-vlog(tail)), m = r - S(1.6), e = r - S(5);
  const X centre = q * RATIO(c, 3.3871328727963666080, 1.3314166789178437745e2,
      1.9715909503065514427e3, 1.3731693765509461125e4, 4.5921953931549871457e4,
      6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
      4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
      2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
      5.2264952788528545610e3);
  const X middle = RATIO(m, 1.42343711074968357734, 4.63033784615654529590,
      5.76949722146069140550, 3.64784832476320460504, 1.27045825245236838258,
      2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
      2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
      1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
      1.05075007164441684324e-9);
  const X far = RATIO(e, 6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
      2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
      2.71155556874348757815e-5, 2.01033439929228813265e-7, 5.99832206555887937690e-1,
      1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
      1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15);
  const X outside = r > S(5) ? far : middle;
  const X ends = tail == S(0) ? X{} + S(INFINITY) : outside;  // NaN outside [0, 1], by the logarithm
  return vabs(q) > S(0.425) ? (q < S(0) ? -ends : ends) : centre;
#undef RATIO
}
inline F vndtri(F p) { return inverse_normal<F, Real>(p); }
inline double vndtri(double p) { return inverse_normal<double, double>(p); }

// --- normal numbers: the same as those of sdesens._philox ---------------------------------------

constexpr int HALF = at::vec::Vectorized<double>::size();  // 64-bit words a vector
typedef uint64_t L __attribute__((vector_size(8 * HALF)));

// Products of the low halves of 64-bit words.
inline L product(L a, uint32_t b) {
#if defined(__AVX512F__)
  if constexpr (HALF == 8) return (L)_mm512_mul_epu32((__m512i)a, (__m512i)(L{} + b));
#elif defined(__AVX2__)
  if constexpr (HALF == 4) return (L)_mm256_mul_epu32((__m256i)a, (__m256i)(L{} + b));
#endif
  return (a & 0xFFFFFFFFull) * b;
}

// Several vectors go through the following functions side by side, statement by statement: one alone
// would wait for itself at every step.
#define EACH for (int i = 0; i < N; ++i)

// Philox4x32-10 of Salmon, Moraes, Dror and Shaw (SC'11). The words stand in the low halves; what is
// in the high ones is void. On entry `w[0]` holds the index of the path, and `w[2]`, `w[3]` the group
// of steps and the channel.
template <int N>
inline void philox(L (&w)[4][N], uint64_t seed) {
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  EACH w[1][i] = w[0][i] >> 32;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    L p0[N], p1[N];
    EACH p0[i] = product(w[0][i], 0xD2511F53u);
    EACH p1[i] = product(w[2][i], 0xCD9E8D57u);
    EACH w[0][i] = (p1[i] >> 32) ^ w[1][i] ^ k0;
    EACH w[1][i] = p1[i];
    EACH w[2][i] = (p0[i] >> 32) ^ w[3][i] ^ k1;
    EACH w[3][i] = p0[i];
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

inline L paths_from(uint64_t first, int stride) {
  L out;
  for (int i = 0; i < HALF; ++i) out[i] = i * stride;
  return out + first;
}

// Root and quotient to the last place or two, by Newton's steps from the processor's estimate where
// it has one: less than half the time of the exact instructions. The root of 0 is about 0.
template <int N>
inline void root(F (&x)[N]) {
#if defined(__AVX512F__)
  F y[N], s[N];
#if IS_DOUBLE
  EACH x[i] += 1e-290;
  EACH y[i] = (F)_mm512_rsqrt14_pd((__m512d)x[i]);
  EACH s[i] = Real(0.5) * x[i] * y[i];
  EACH s[i] = Real(1.5) - s[i] * y[i];
  EACH y[i] *= s[i];
#else
  EACH x[i] += 1e-30f;
  EACH y[i] = (F)_mm512_rsqrt14_ps((__m512)x[i]);
#endif
  EACH s[i] = x[i] * y[i];
  EACH y[i] *= Real(0.5);
  EACH x[i] -= s[i] * s[i];
  EACH x[i] = s[i] + y[i] * x[i];
#else
  EACH x[i] = vsqrt(x[i]);
#endif
}

template <int N>
inline void quotient(const F (&a)[N], const F (&b)[N], F (&q)[N]) {
#if defined(__AVX512F__) && IS_DOUBLE
  F y[N], e[N];
  EACH y[i] = (F)_mm512_rcp14_pd((__m512d)b[i]);
  EACH e[i] = Real(2) - b[i] * y[i];
  EACH y[i] *= e[i];
  EACH q[i] = a[i] * y[i];
  EACH e[i] = a[i] - b[i] * q[i];
  EACH q[i] += y[i] * e[i];
#else
  EACH q[i] = a[i] / b[i];
#endif
}

#define HORNER(y, x, coefficient) EACH y[i] = y[i] * x[i] + Real(coefficient)

#if IS_DOUBLE

constexpr int LANES = 2;  // normals a counter
typedef uint64_t Bits __attribute__((vector_size(8 * WIDTH)));
typedef int64_t Signed __attribute__((vector_size(8 * WIDTH)));
constexpr int FRACTION = 52, BIAS = 1022;
constexpr uint64_t SIGNIFICAND = 0x000FFFFFFFFFFFFFull, HALF_BITS = 0x3FE0000000000000ull;
constexpr Real TO_UNIFORM = 0x1p-53, TO_ANGLE = 0x1p-64 * 1.57079632679489661923;
constexpr int QUADRANT = 51, ANGLE_SHIFT = 13, SIGN = 62;
constexpr uint64_t ROUND = 1ull << 50;

#else

constexpr int LANES = 4;
typedef uint32_t Bits __attribute__((vector_size(4 * WIDTH)));
typedef int32_t Signed __attribute__((vector_size(4 * WIDTH)));
constexpr int FRACTION = 23, BIAS = 126;
constexpr uint32_t SIGNIFICAND = 0x007FFFFFu, HALF_BITS = 0x3F000000u;
constexpr Real TO_UNIFORM = 0x1p-32f, TO_ANGLE = 0x1p-32f * 1.57079632679489661923f;
constexpr int QUADRANT = 30, ANGLE_SHIFT = 2, SIGN = 30;
constexpr uint32_t ROUND = 1u << 29;

#endif

// The logarithm of numbers in (0, 1] that are not subnormal.
template <int N>
inline void log_of_uniform(F (&x)[N]) {
  F f[N], e[N], y[N];
  EACH {
    const Bits bits = (Bits)x[i];
    const F m = (F)((bits & SIGNIFICAND) | HALF_BITS);  // in [1/2, 1)
    const Mask small = m < Real(0.70710678118654752440);
    f[i] = (small ? m + m : m) - Real(1);
    e[i] = __builtin_convertvector((Signed)(bits >> FRACTION) - BIAS + (Signed)small, F);
  }
#if IS_DOUBLE  // fdlibm
  F s[N], z[N];
  EACH y[i] = f[i] + 2.0;
  quotient(f, y, s);
  EACH z[i] = s[i] * s[i];
  EACH y[i] = z[i] * 1.479819860511658591e-01 + 1.531383769920937332e-01;
  HORNER(y, z, 1.818357216161805012e-01);
  HORNER(y, z, 2.222219843214978396e-01);
  HORNER(y, z, 2.857142874366239149e-01);
  HORNER(y, z, 3.999999999940941908e-01);
  HORNER(y, z, 6.666666666666735130e-01);
  EACH y[i] *= z[i];
  EACH z[i] = 0.5 * f[i] * f[i];
  EACH y[i] = s[i] * (z[i] + y[i]) + e[i] * 1.90821492927058770002e-10;
  EACH x[i] = e[i] * 6.93147180369123816490e-01 - ((z[i] - y[i]) - f[i]);
#else  // Cephes
  EACH y[i] = f[i] * 7.0376836292e-2f - 1.1514610310e-1f;
  HORNER(y, f, 1.1676998740e-1f);
  HORNER(y, f, -1.2420140846e-1f);
  HORNER(y, f, 1.4249322787e-1f);
  HORNER(y, f, -1.6668057665e-1f);
  HORNER(y, f, 2.0000714765e-1f);
  HORNER(y, f, -2.4999993993e-1f);
  HORNER(y, f, 3.3333331174e-1f);
  EACH y[i] = y[i] * f[i] - 0.5f;
  EACH y[i] = y[i] * (f[i] * f[i]) - 2.12194440e-4f * e[i];
  EACH x[i] = (f[i] + y[i]) + 0.693359375f * e[i];
#endif
}

// Box and Muller's normals. The angle is brought to [-pi/4, pi/4] exactly, where the polynomials of
// fdlibm (double) and Cephes (float) hold.
template <int N>
inline void polar(const Bits (&radius)[N], const Bits (&angle)[N], F (&first)[N], F (&second)[N]) {
  F r[N], x[N], z[N], s[N], c[N];
  EACH {
    const Bits above = radius[i] + 1;
#if IS_DOUBLE
    r[i] = __builtin_convertvector((Signed)above, F) * TO_UNIFORM;
#else
    r[i] = (above == 0) ? all(1.0) : __builtin_convertvector(above, F) * TO_UNIFORM;
#endif
  }
  log_of_uniform(r);
  EACH r[i] *= Real(-2);
  root(r);
  EACH x[i] = __builtin_convertvector((Signed)(angle[i] << ANGLE_SHIFT), F) * TO_ANGLE;
  EACH z[i] = x[i] * x[i];
#if IS_DOUBLE
  EACH s[i] = z[i] * 1.58969099521155010221e-10 - 2.50507602534068634195e-08;
  EACH c[i] = z[i] * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
  HORNER(s, z, 2.75573137070700676789e-06);
  HORNER(c, z, -2.75573143513906633035e-07);
  HORNER(s, z, -1.98412698298579493134e-04);
  HORNER(c, z, 2.48015872894767294178e-05);
  HORNER(s, z, 8.33333333332248946124e-03);
  HORNER(c, z, -1.38888888888741095749e-03);
  HORNER(s, z, -1.66666666666666324348e-01);
  HORNER(c, z, 4.16666666666666019037e-02);
#else
  EACH s[i] = z[i] * -1.9515295891e-4f + 8.3321608736e-3f;
  EACH c[i] = z[i] * 2.443315711809948e-5f - 1.388731625493765e-3f;
  HORNER(s, z, -1.6666654611e-1f);
  HORNER(c, z, 4.166664568298827e-2f);
#endif
  EACH s[i] = x[i] + x[i] * z[i] * s[i];
  HORNER(c, z, -0.5);
  HORNER(c, z, 1);
  EACH {
    const Bits quadrant = (angle[i] + ROUND) >> QUADRANT;
    const Mask odd = (Mask)((quadrant & 1) != 0);
    const F cosine = odd ? s[i] : c[i], sine = odd ? c[i] : s[i];
    first[i] = r[i] * (F)((Bits)cosine ^ (((quadrant + 1) & 2) << SIGN));
    second[i] = r[i] * (F)((Bits)sine ^ ((quadrant & 2) << SIGN));
  }
}

// The next LANES normals of N vectors of paths.
template <int N>
inline void normals(uint64_t path, uint32_t group, uint32_t channel, uint64_t seed,
                    F (&z)[LANES][N]) {
#if IS_DOUBLE
  L w[4][N];
  EACH w[0][i] = paths_from(path + i * WIDTH, 1);
  EACH w[2][i] = L{} + group;
  EACH w[3][i] = L{} + channel;
  philox(w, seed);
  Bits radius[N], angle[N];
  EACH radius[i] = (w[0][i] << 32 >> 11) | (w[1][i] << 32 >> 43);
  EACH angle[i] = (w[2][i] << 32 >> 11) | (w[3][i] << 32 >> 43);
  polar(radius, angle, z[0], z[1]);
#else
  L w[4][2 * N];  // even paths, odd paths
  EACH w[0][2 * i] = paths_from(path + i * WIDTH, 2);
  EACH w[0][2 * i + 1] = paths_from(path + i * WIDTH + 1, 2);
  for (int i = 0; i < 2 * N; ++i) w[2][i] = L{} + group;
  for (int i = 0; i < 2 * N; ++i) w[3][i] = L{} + channel;
  philox(w, seed);
  Bits word[4][N];
  for (int k = 0; k < 4; ++k)
    EACH word[k][i] = (Bits)((w[k][2 * i] & 0xFFFFFFFFull) | (w[k][2 * i + 1] << 32));
  polar(word[0], word[1], z[0], z[1]);
  polar(word[2], word[3], z[2], z[3]);
#endif
}

}  // namespace
