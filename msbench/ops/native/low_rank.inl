// Step sizes of low rank, dt = softplus(weight low + bias), made where they are used: in memory they would be as
// large as all streams, and so would their gradients.

// e^-|x|, and log(1 + e) for e in [0, 1]: a polynomial without a constant term, so that the smallest steps are as
// accurate as the largest (relative error 2e-7).
INLINE Lanes<float>::V exp_minus(const Lanes<float>::V& size) {
    const Lanes<float>::V rate[1] = {Lanes<float>::V{} - 1.44269504F};
    Lanes<float>::V result[1];
    exp2_product<false, 1>(size, rate, result);
    return result[0];
}

INLINE Lanes<float>::V log1p_small(const Lanes<float>::V& e) {
    Lanes<float>::V sum = -0.0032439972F * e + 0.019851336F;
    sum = sum * e - 0.056959298F;
    sum = sum * e + 0.10603631F;
    sum = sum * e - 0.15305579F;
    sum = sum * e + 0.19675934F;
    sum = sum * e - 0.24954133F;
    sum = sum * e + 0.33329964F;
    sum = sum * e - 0.49999902F;
    return sum * e * e + e;
}

INLINE Lanes<double>::V exp_minus(Lanes<double>::V size) {
    for (int i = 0; i < WIDTH<double>; ++i) size[i] = std::exp(-size[i]);
    return size;
}

INLINE Lanes<double>::V log1p_small(Lanes<double>::V e) {
    for (int i = 0; i < WIDTH<double>; ++i) e[i] = std::log1p(e[i]);
    return e;
}

template <class T>
struct LowRank {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;
    const int64_t m, d, r, step;
    const T *const low, *const weight, *const bias;

    explicit LowRank(const ScanProblem& p)
        : m(p.m), d(p.d), r(p.dt ? 0 : p.r), step(p.low_step), low(static_cast<const T*>(p.low)),
          weight(static_cast<const T*>(p.weight)), bias(static_cast<const T*>(p.bias)) {}

    // The steps of one stream and block of channels, from a row of (b, l, m) on; and, where `slopes` is not null, the
    // derivative of the softplus.
    void make(int64_t row, int64_t s, int64_t block, int lanes, int steps, V* dt, V* slopes) const {
        V x[STEPS];
        const V offset = load(bias + s * d + block * W, lanes), one = V{} + T{1};
        for (int t = 0; t < steps; ++t) x[t] = offset;
        int64_t k = 0;
        for (; k + 4 <= r; k += 4) add_products<4>(row, s, block, lanes, k, steps, x);
        for (; k < r; ++k) add_products<1>(row, s, block, lanes, k, steps, x);
        for (int t = 0; t < steps; ++t) {
            const V e = exp_minus(x[t] < 0 ? -x[t] : x[t]);
            dt[t] = (x[t] > 0 ? x[t] : V{}) + log1p_small(e);
            if (slopes) slopes[t] = (x[t] < 0 ? e : one) / (e + one);
        }
    }

    // From g, the gradient of what the softplus is taken of: those of weight and bias, (r + 1) sums over steps, and of
    // low, (r, STEPS) sums over blocks.
    void add_gradients(int64_t row, int64_t s, int64_t block, int lanes, int steps, const V* g, V* sums,
                       V* glow) const {
        for (int t = 0; t < steps; ++t) sums[r] += g[t];
        int64_t k = 0;
        for (; k + 4 <= r; k += 4) add_some<4>(row, s, block, lanes, k, steps, g, sums, glow);
        for (; k < r; ++k) add_some<1>(row, s, block, lanes, k, steps, g, sums, glow);
    }

  private:
    V weights(int64_t s, int64_t k, int64_t block, int lanes) const {
        return load(weight + (s * r + k) * d + block * W, lanes);
    }

    template <int N>
    INLINE void add_products(int64_t row, int64_t s, int64_t block, int lanes, int64_t k, int steps, V* x) const {
        V w[N];
        for (int j = 0; j < N; ++j) w[j] = weights(s, k + j, block, lanes);
        for (int t = 0; t < steps; ++t) {
            const T* const from = low + (row + t * m) * step + k;
            V sum = x[t];
            for (int j = 0; j < N; ++j) sum += w[j] * from[j];
            x[t] = sum;
        }
    }

    template <int N>
    INLINE void add_some(int64_t row, int64_t s, int64_t block, int lanes, int64_t k, int steps, const V* g,
                         V* sums, V* glow) const {
        V w[N], sum[N] = {};
        for (int j = 0; j < N; ++j) w[j] = weights(s, k + j, block, lanes);
        for (int t = 0; t < steps; ++t) {
            const T* const from = low + (row + t * m) * step + k;
            for (int j = 0; j < N; ++j) {
                sum[j] += g[t] * from[j];
                glow[(k + j) * STEPS + t] += g[t] * w[j];
            }
        }
        for (int j = 0; j < N; ++j) sums[k + j] += sum[j];
    }
};
