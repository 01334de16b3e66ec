// Step sizes, dt = softplus(weight low + bias), without the pre-activations in memory: the backward computes them
// again, with r products each. A task is a run of rows whose length depends on shapes alone.

// e^-|x|, and log(1 + e^-|x|) through 2 artanh(e / (2 + e)): relative accuracy also for the smallest steps.
INLINE Lanes<float>::V exp_minus(const Lanes<float>::V& size) {
    const Lanes<float>::V rate[1] = {Lanes<float>::V{} - 1.44269504F};
    Lanes<float>::V result[1];
    exp2_product<false, 1>(size, rate, result);
    return result[0];
}

INLINE Lanes<float>::V log1p_small(const Lanes<float>::V& e) {
    const Lanes<float>::V z = e / (e + 2.0F), q = z * z;
    Lanes<float>::V sum = q * (1.0F / 13) + 1.0F / 11;
    sum = sum * q + 1.0F / 9;
    sum = sum * q + 1.0F / 7;
    sum = sum * q + 1.0F / 5;
    sum = sum * q + 1.0F / 3;
    sum = sum * q + 1.0F;
    return 2.0F * z * sum;
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
INLINE Vector<T> softplus(const Vector<T>& x) {
    const Vector<T> size = x < 0 ? -x : x, positive = x > 0 ? x : Vector<T>{};
    return positive + log1p_small(exp_minus(size));
}

template <class T>
INLINE Vector<T> sigmoid(const Vector<T>& x) {
    const Vector<T> size = x < 0 ? -x : x, e = exp_minus(size), one = Vector<T>{} + T{1};
    return (x < 0 ? e : one) / (e + one);
}

template <class T>
class Steps {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

  public:
    explicit Steps(const StepsProblem& problem)
        : p(problem), low_(static_cast<const T*>(p.low)), weight_(static_cast<const T*>(p.weight)),
          bias_(static_cast<const T*>(p.bias)), blocks_(ceil_div(p.d, W)), spans_(ceil_div(p.rows, STEPS)),
          run_(std::max<int64_t>(16, ceil_div(spans_, 64))) {}  // at most 64 partial sums

    int64_t tasks() const { return ceil_div(spans_, run_); }
    int threads() const { return threads_for(p.rows * p.m * p.d, tasks(), p.threads); }
    int64_t sums() const { return p.m * blocks_ * (p.r + 1); }  // of a task: (m, blocks, r + 1)
    int64_t scratch() const { return p.r * STEPS; }

    void forward(int64_t task, T* dt) const {
        for (int64_t row = task * run_ * STEPS; row < end(task); row += STEPS)
            for (int64_t s = 0; s < p.m; ++s)
                for (int64_t block = 0; block < blocks_; ++block) {
                    V x[STEPS];
                    const int steps = before_softplus(row, s, block, x);
                    for (int t = 0; t < steps; ++t)
                        store(dt + at(row + t, s, block), softplus<T>(x[t]), lanes(block));
                }
    }

    void backward(int64_t task, const T* gdt, T* glow, V* sums, V* scratch) const {
        std::fill_n(sums, this->sums(), V{});
        for (int64_t row = task * run_ * STEPS; row < end(task); row += STEPS)
            for (int64_t s = 0; s < p.m; ++s) {
                std::fill_n(scratch, p.r * STEPS, V{});
                for (int64_t block = 0; block < blocks_; ++block)
                    add_block(row, s, block, gdt, sums + (s * blocks_ + block) * (p.r + 1), scratch);
                write_low(row, s, glow, scratch);
            }
    }

    // gweight (m, r, d), gbias (m, d)
    void sum_tasks(const V* partials, T* gweight, T* gbias) const {
        for (int64_t i = 0; i < sums(); ++i) {
            V sum = {};
            for (int64_t task = 0; task < tasks(); ++task) sum += partials[task * sums() + i];
            const int64_t k = i % (p.r + 1), block = i / (p.r + 1) % blocks_, s = i / (p.r + 1) / blocks_;
            T* const to = k < p.r ? gweight + (s * p.r + k) * p.d : gbias + s * p.d;
            store(to + block * W, sum, lanes(block));
        }
    }

  private:
    const StepsProblem& p;
    const T *const low_, *const weight_, *const bias_;
    const int64_t blocks_, spans_, run_;  // of channels, of steps; spans a task

    int lanes(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, p.d - block * W)); }
    int64_t end(int64_t task) const { return std::min(p.rows, (task + 1) * run_ * STEPS); }
    int64_t at(int64_t row, int64_t s, int64_t block) const { return (row * p.m + s) * p.d + block * W; }
    const T* low(int64_t row, int64_t s) const { return low_ + (row * p.m + s) * p.low_step; }
    V weight(int64_t s, int64_t k, int64_t block) const {
        return load(weight_ + (s * p.r + k) * p.d + block * W, lanes(block));
    }

    INLINE int before_softplus(int64_t row, int64_t s, int64_t block, V* x) const {
        const int steps = static_cast<int>(std::min<int64_t>(STEPS, p.rows - row));
        const V bias = load(bias_ + s * p.d + block * W, lanes(block));
        for (int t = 0; t < STEPS; ++t) x[t] = bias;
        int64_t k = 0;
        for (; k + 4 <= p.r; k += 4) add_products<4>(row, s, block, k, steps, x);
        for (; k < p.r; ++k) add_products<1>(row, s, block, k, steps, x);
        return steps;
    }

    template <int N>
    INLINE void add_products(int64_t row, int64_t s, int64_t block, int64_t k, int steps, V* x) const {
        V w[N];
        for (int j = 0; j < N; ++j) w[j] = weight(s, k + j, block);
        for (int t = 0; t < steps; ++t) {
            const T* const from = low(row + t, s) + k;
            V sum = x[t];
            for (int j = 0; j < N; ++j) sum += w[j] * from[j];
            x[t] = sum;
        }
    }

    void add_block(int64_t row, int64_t s, int64_t block, const T* gdt, V* sums, V* glow) const {
        V g[STEPS], total = {};
        const int steps = before_softplus(row, s, block, g);
        for (int t = 0; t < steps; ++t) {
            g[t] = load(gdt + at(row + t, s, block), lanes(block)) * sigmoid<T>(g[t]);
            total += g[t];
        }
        sums[p.r] += total;
        int64_t k = 0;
        for (; k + 4 <= p.r; k += 4) add_gradients<4>(row, s, block, k, steps, g, sums, glow);
        for (; k < p.r; ++k) add_gradients<1>(row, s, block, k, steps, g, sums, glow);
    }

    template <int N>
    INLINE void add_gradients(int64_t row, int64_t s, int64_t block, int64_t k, int steps, const V* g, V* sums,
                              V* glow) const {
        V w[N], sum[N] = {};
        for (int j = 0; j < N; ++j) w[j] = weight(s, k + j, block);
        for (int t = 0; t < steps; ++t) {
            const T* const from = low(row + t, s) + k;
            for (int j = 0; j < N; ++j) {
                sum[j] += g[t] * from[j];
                glow[(k + j) * STEPS + t] += g[t] * w[j];
            }
        }
        for (int j = 0; j < N; ++j) sums[k + j] += sum[j];
    }

    void write_low(int64_t row, int64_t s, T* glow, V* sums) const {
        const int64_t steps = std::min<int64_t>(STEPS, p.rows - row);
        for (int64_t k = 0; k < p.r; ++k)
            for (int64_t first = 0; first < steps; first += W) {
                const V sum = sum_lanes<T>(sums + k * STEPS + first);
                for (int64_t t = first; t < std::min<int64_t>(first + W, steps); ++t)
                    glow[((row + t) * p.m + s) * p.r + k] = sum[t - first];
            }
    }
};

template <class T>
void run_steps_forward(const StepsProblem& problem, T* dt) {
    const Steps<T> work(problem);
    for_each_task(work.tasks(), work.threads(), [&](int64_t task, int) { work.forward(task, dt); });
}

template <class T>
void run_steps_backward(const StepsProblem& problem, const T* gdt, T* glow, T* gweight, T* gbias) {
    const Steps<T> work(problem);
    const int threads = work.threads();
    const Buffer<Vector<T>> partials(work.tasks() * work.sums()), scratch(threads * work.scratch());
    for_each_task(work.tasks(), threads, [&](int64_t task, int worker) {
        work.backward(task, gdt, glow, partials.get() + task * work.sums(),
                      scratch.get() + worker * work.scratch());
    });
    work.sum_tasks(partials.get(), gweight, gbias);
}
