// Runs the step over blocks of paths; read behind the generated functions
//
//   run_values(number, parameter, out)              what all steps share
//   step_values(run, time, rate, flag, out)         what all paths share in a step
//   last_values(run, time, rate, flag, out)         the same for the end of the path
//   step(run, values, z, x)                         the next state of a vector of paths
//   finish(run, values, x, y)                       the outputs at the end
//
// and the constants SLOTS, NOISE, FLAGS, RUN_VALUES, STEP_VALUES, LAST_VALUES, OUTPUTS, COUNTERS.

namespace {

constexpr int BLOCK = 256;                  // paths whose state and noise stay in the first cache
constexpr int COLUMNS = BLOCK / WIDTH;
constexpr int TIMES = 3;
constexpr int TOGETHER = 4;                 // vectors of paths whose noise is made side by side

struct Job {
  const double* numbers;
  const double* parameters;
  const double* times;       // (steps, 3): start, end, width of the noise
  const double* rates;       // (steps, 3): their derivatives in the maturity
  const double* flags;       // (steps, FLAGS)
  int64_t steps;
  uint64_t seed;
  int64_t first_path;        // global index of path 0
  int64_t paths;             // length of the arrays below in paths
  int64_t begin, end;        // the paths of this call
  const Real* start;         // (SLOTS, start_stride), or (SLOTS,) with stride 0
  int64_t start_stride;
  const Real* noise;         // (steps, NOISE, paths), or null: made from the seed
  const int32_t* keep;       // (steps + 1): row of `kept` for a node, or -1; or null
  Real* kept;                // (rows, SLOTS, paths)
  Real* samples;             // (OUTPUTS, paths), or null
  double* moments;           // OUTPUTS means, then OUTPUTS^2 sums of products; or null
};

struct Block {
  const Job& job;
  int64_t begin;  // index of its first path in the job
  int paths, columns;

  Block(const Job& job, int64_t begin)
      : job(job), begin(begin),
        paths(int(job.end - begin < BLOCK ? job.end - begin : BLOCK)),
        columns((paths + WIDTH - 1) / WIDTH) {}

  int lanes(int column) const {
    const int left = paths - column * WIDTH;
    return left < WIDTH ? left : WIDTH;
  }

  // Lanes beyond the last path repeat it: whatever they come to is never stored.
  F load(const Real* from, int column) const {
    F out;
    const int n = lanes(column);
    from += begin + column * WIDTH;
    if (n == WIDTH) {
      std::memcpy(&out, from, sizeof out);
    } else {
      for (int i = 0; i < WIDTH; ++i) out[i] = from[i < n ? i : n - 1];
    }
    return out;
  }

  void store(Real* to, F value, int column) const {
    to += begin + column * WIDTH;
    const int n = lanes(column);
    if (n == WIDTH) {
      std::memcpy(to, &value, sizeof value);
    } else {
      std::memcpy(to, &value, n * sizeof(Real));
    }
  }
};

// Means and sums of products of deviations, in double, about a shift near the means.
struct Moments {
  static constexpr int K = OUTPUTS > 0 ? OUTPUTS : 1;
  typedef double D __attribute__((vector_size(8 * WIDTH)));
  D sum[K] = {}, product[K * (K + 1) / 2] = {};
  double shift[K] = {};
  bool shifted = false;

  void add(const F* y, int lanes) {
    if (!shifted) {
      for (int k = 0; k < OUTPUTS; ++k) shift[k] = std::isfinite(y[k][0]) ? y[k][0] : 0.0;
      shifted = true;
    }
    D d[K];
    for (int k = 0; k < OUTPUTS; ++k) {
      d[k] = __builtin_convertvector(y[k], D) - shift[k];
      for (int i = lanes; i < WIDTH; ++i) d[k][i] = 0.0;
      sum[k] += d[k];
    }
    for (int k = 0, at = 0; k < OUTPUTS; ++k)
      for (int l = 0; l <= k; ++l, ++at) product[at] += d[k] * d[l];
  }

  static double total(const D& v) {
    double out = 0;
    for (int i = 0; i < WIDTH; ++i) out += v[i];
    return out;
  }

  void write(double* out, int64_t paths) const {
    double sums[K];
    for (int k = 0; k < OUTPUTS; ++k) {
      sums[k] = total(sum[k]);
      out[k] = shift[k] + sums[k] / double(paths);
    }
    out += OUTPUTS;
    for (int k = 0, at = 0; k < OUTPUTS; ++k)
      for (int l = 0; l <= k; ++l, ++at)
        out[k * OUTPUTS + l] = out[l * OUTPUTS + k] =
            total(product[at]) - sums[k] * sums[l] / double(paths);
  }
};

typedef F Noise[LANES][NOISE > 0 ? NOISE : 1];

// The noise of LANES steps for N vectors of paths.
template <int N>
inline void draw(const Block& block, int64_t group, int column, Noise* z) {
  const uint64_t path = uint64_t(block.job.first_path + block.begin) + uint64_t(column) * WIDTH;
  for (int c = 0; c < NOISE; ++c) {
    F normal[LANES][N];
    normals(path, uint32_t(group), COUNTERS[c], block.job.seed, normal);
    for (int k = 0; k < LANES; ++k)
      for (int i = 0; i < N; ++i) z[column + i][k][c] = normal[k][i];
  }
}

// The same for every path of the block.
inline void draw(const Block& block, int64_t group, Noise* z) {
  int column = 0;
  for (; column + TOGETHER <= block.columns; column += TOGETHER)
    draw<TOGETHER>(block, group, column, z);
  for (; column < block.columns; ++column) draw<1>(block, group, column, z);
}

inline void read(const Block& block, int64_t first, int count, Noise* z) {
  for (int k = 0; k < count; ++k)
    for (int c = 0; c < NOISE; ++c)
      for (int column = 0; column < block.columns; ++column)
        z[column][k][c] =
            block.load(block.job.noise + ((first + k) * NOISE + c) * block.job.paths, column);
}

struct Shared {  // what all paths share, in the type of the state
  std::vector<Real> run, steps, last;

  explicit Shared(const Job& job) {
    std::vector<double> all_run(RUN_VALUES + 1), one(STEP_VALUES + LAST_VALUES + 1);
    run_values(job.numbers, job.parameters, all_run.data());
    run.assign(all_run.begin(), all_run.end());
    steps.resize(job.steps * STEP_VALUES + 1);
    for (int64_t k = 0; k < job.steps; ++k) {
      step_values(all_run.data(), job.times + k * TIMES, job.rates + k * TIMES,
                  job.flags + k * FLAGS, one.data());
      for (int i = 0; i < STEP_VALUES; ++i) steps[k * STEP_VALUES + i] = Real(one[i]);
    }
    const int64_t k = job.steps - 1;
    last_values(all_run.data(), job.times + k * TIMES, job.rates + k * TIMES,
                job.flags + k * FLAGS, one.data());
    last.assign(one.begin(), one.begin() + LAST_VALUES + 1);
  }
};

}  // namespace

extern "C" void run(const Job* given) {
  const Job& job = *given;
  const Shared shared(job);
  Moments moments;
  alignas(64) F x[COLUMNS][SLOTS];
  alignas(64) Noise z[COLUMNS];
  for (int64_t begin = job.begin; begin < job.end; begin += BLOCK) {
    const Block block(job, begin);
    const auto keep = [&](int64_t node, const F* state, int column) {
      const int32_t row = job.keep[node];
      if (row >= 0)
        for (int s = 0; s < SLOTS; ++s)
          block.store(job.kept + (int64_t(row) * SLOTS + s) * job.paths, state[s], column);
    };
    for (int column = 0; column < block.columns; ++column) {
      for (int s = 0; s < SLOTS; ++s)
        x[column][s] = job.start_stride ? block.load(job.start + s * job.start_stride, column)
                                        : all(job.start[s]);
      if (job.keep) keep(0, x[column], column);
    }
    for (int64_t first = 0; first < job.steps; first += LANES) {
      const int count = int(job.steps - first < LANES ? job.steps - first : LANES);
      if (job.noise) read(block, first, count, z);
      else draw(block, first / LANES, z);
      const Real* values = shared.steps.data() + first * STEP_VALUES;
      for (int column = 0; column < block.columns; ++column) {
        F state[SLOTS];
        for (int s = 0; s < SLOTS; ++s) state[s] = x[column][s];
        for (int k = 0; k < count; ++k) {
          step(shared.run.data(), values + k * STEP_VALUES, z[column][k], state);
          if (job.keep) keep(first + k + 1, state, column);
        }
        for (int s = 0; s < SLOTS; ++s) x[column][s] = state[s];
      }
    }
    if (job.samples || job.moments)
      for (int column = 0; column < block.columns; ++column) {
        F y[OUTPUTS > 0 ? OUTPUTS : 1];
        finish(shared.run.data(), shared.last.data(), x[column], y);
        if (job.samples)
          for (int k = 0; k < OUTPUTS; ++k) block.store(job.samples + k * job.paths, y[k], column);
        if (job.moments) moments.add(y, block.lanes(column));
      }
  }
  if (job.moments) moments.write(job.moments, job.end - job.begin);
}
