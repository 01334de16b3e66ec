// h_t = a_t h_{t-1} + x_t, element by element. Reading and writing take the time, so a task goes through all its
// channels every STEPS steps: rows are used whole while they are in cache.

// Lane K of the result is lane (K & AND) ^ XOR of x.
template <class T, int AND, int XOR, int... K>
INLINE Vector<T> permuted(const Vector<T>& x, std::integer_sequence<int, K...>) {
#ifdef __clang__
    return __builtin_shufflevector(x, x, ((K & AND) ^ XOR)...);
#else
    return __builtin_shuffle(x, typename Lanes<T>::I{((K & AND) ^ XOR)...});
#endif
}

template <class T, int... K>
INLINE Vector<T> alternating(std::integer_sequence<int, K...>) {
    return Vector<T>{(K & 1 ? T{1} : T{-1})...};
}

// A vector as a factor. Complex numbers are pairs of lanes, so it is two vectors: the real parts twice each, and the
// imaginary parts, negative for the real part of a product.
template <class T, bool COMPLEX>
struct Factor {
    Vector<T> re, im;

    INLINE Factor() = default;
    INLINE explicit Factor(const Vector<T>& x) {
        constexpr auto lanes = std::make_integer_sequence<int, WIDTH<T>>();
        if constexpr (COMPLEX) {
            re = permuted<T, ~1, 0>(x, lanes);
            im = permuted<T, ~1, 1>(x, lanes) * alternating<T>(lanes);
        } else {
            re = x;
        }
    }
    INLINE Vector<T> times(const Vector<T>& x, const Vector<T>& sum) const {
        if constexpr (COMPLEX) return re * x + (im * swapped(x) + sum);
        return re * x + sum;
    }
    // The conjugate of the factor times x.
    INLINE Vector<T> conjugate_times(const Vector<T>& x) const {
        if constexpr (COMPLEX) return re * x - im * swapped(x);
        return re * x;
    }

  private:
    static INLINE Vector<T> swapped(const Vector<T>& x) {
        return permuted<T, -1, 1>(x, std::make_integer_sequence<int, WIDTH<T>>());
    }
};

template <class T, bool COMPLEX>
class Linear {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;
    static constexpr int TOGETHER = 4;  // vectors whose chains of multiplications overlap

  public:
    explicit Linear(const LinearProblem& problem)
        : p(problem), a_(static_cast<const T*>(p.a)), x_(static_cast<const T*>(p.x)), blocks_(ceil_div(p.d, W)),
          spans_(ceil_div(p.l, STEPS)),
          together_(std::clamp<int64_t>(p.b * blocks_ / (4 * std::max(p.threads, 1)), TOGETHER, 16 * TOGETHER)) {}

    int64_t tasks() const { return p.b * groups(); }
    // Examples that share a gradient of every step add to it one after another.
    int64_t backward_tasks() const { return examples_share() ? groups() : tasks(); }
    int threads(int64_t tasks) const { return threads_for(p.b * p.l * p.d, STEPS_PER_THREAD, tasks, p.threads); }
    int64_t scratch() const { return 2 * together_; }
    int64_t sums() const { return p.ga_step ? 0 : p.b * blocks_; }

    void forward(int64_t task, T* h, V* state) const {
        const int64_t example = task / groups(), first = task % groups() * together_;
        const int64_t last = std::min(first + together_, blocks_);
        std::fill_n(state, last - first, V{});
        for (int64_t t = 0; t < p.l; t += STEPS)
            in_blocks(first, last, [&](auto count, int64_t block, int lanes) {
                advance<decltype(count)::value>(example, t, block, lanes, state + (block - first), h);
            });
    }

    // x holds the gradient of h. sums: of a, before the sum over examples where its gradient has no steps.
    void backward(int64_t task, const T* h, T* gx, T* ga, V* sums, V* scratch) const {
        const int64_t from = examples_share() ? 0 : task / groups(), to = examples_share() ? p.b : from + 1;
        const int64_t first = task % groups() * together_, last = std::min(first + together_, blocks_);
        for (int64_t example = from; example < to; ++example) {
            std::fill_n(scratch, 2 * together_, V{});
            V *const carry = scratch, *const sum = scratch + together_;
            for (int64_t span = spans_ - 1; span >= 0; --span)
                in_blocks(first, last, [&](auto count, int64_t block, int lanes) {
                    const int64_t i = block - first;
                    retreat<decltype(count)::value>(example, span * STEPS, block, lanes, h, carry + i, sum + i, gx,
                                                    ga);
                });
            if (p.ga_step == 0) std::copy(sum, sum + (last - first), sums + example * blocks_ + first);
        }
    }

    // ga, where all steps share it.
    void sum_steps(const V* sums, T* ga) const {
        for (int64_t block = 0; block < blocks_; ++block) {
            V sum = {};
            for (int64_t example = 0; example < p.b; ++example) {
                const V& own = sums[example * blocks_ + block];
                sum = p.ga_example ? own : sum + own;
                if (p.ga_example || example == p.b - 1)
                    store(ga + example * p.ga_example + block * W, sum, lanes_of(block));
            }
        }
    }

  private:
    const LinearProblem& p;
    const T *const a_, *const x_;
    const int64_t blocks_, spans_;  // of channels, of steps
    const int64_t together_;        // blocks a task; it changes no result

    int64_t groups() const { return ceil_div(blocks_, together_); }
    bool examples_share() const { return p.ga_step && !p.ga_example && p.b > 1; }
    int lanes_of(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, p.d - block * W)); }
    int64_t steps(int64_t t) const { return std::min<int64_t>(STEPS, p.l - t); }

    template <class Run>
    INLINE void in_blocks(int64_t first, int64_t last, const Run& run) const {
        int64_t block = first;
        for (; block + TOGETHER <= last && (block + TOGETHER) * W <= p.d; block += TOGETHER)
            run(std::integral_constant<int, TOGETHER>(), block, W);
        for (; block < last; ++block) run(std::integral_constant<int, 1>(), block, lanes_of(block));
    }

    // Factors of a step, kept from the step before where all share them.
    template <int N>
    INLINE void read_factors(Factor<T, COMPLEX> (&a)[N], const T* from, int lanes) const {
        for (int j = 0; j < N; ++j) a[j] = Factor<T, COMPLEX>(load(from + j * W, N == 1 ? lanes : W));
    }

    template <int N>
    INLINE void advance(int64_t example, int64_t t, int64_t block, int lanes, V* state, T* out) const {
        if (N > 1) lanes = W;
        const T* a = a_ + example * p.a_example + t * p.a_step + block * W;
        const T* x = x_ + example * p.x_example + t * p.x_step + block * W;
        T* h = out + (example * p.l + t) * p.d + block * W;
        Factor<T, COMPLEX> factors[N];
        V now[N];
        for (int j = 0; j < N; ++j) now[j] = flush<T>(state[j]);
        read_factors<N>(factors, a, lanes);
        for (int64_t left = steps(t); left > 0; --left, x += p.x_step, h += p.d) {
            if (p.a_step) read_factors<N>(factors, a, lanes), a += p.a_step;
            for (int j = 0; j < N; ++j) {
                now[j] = factors[j].times(now[j], load(x + j * W, lanes));
                store(h + j * W, now[j], lanes);
            }
        }
        std::copy_n(now, N, state);
    }

    template <int N>
    INLINE void retreat(int64_t example, int64_t t, int64_t block, int lanes, const T* states, V* carries, V* sums,
                        T* gx, T* ga) const {
        if (N > 1) lanes = W;
        Factor<T, COMPLEX> factors[N];
        V carry[N], sum[N] = {};
        for (int j = 0; j < N; ++j) carry[j] = flush<T>(carries[j]);
        read_factors<N>(factors, a_ + example * p.a_example + block * W, lanes);
        for (int64_t step = t + steps(t) - 1; step >= t; --step) {
            if (p.a_step)
                read_factors<N>(factors, a_ + example * p.a_example + step * p.a_step + block * W, lanes);
            const int64_t at = (example * p.l + step) * p.d + block * W;
            const T* const gh = x_ + example * p.x_example + step * p.x_step + block * W;
            for (int j = 0; j < N; ++j) {
                const V g = load(gh + j * W, lanes) + carry[j];
                V before = {};
                if (step > 0) before = load(states + at - p.d + j * W, lanes);
                const V own = Factor<T, COMPLEX>(before).conjugate_times(g);
                store(gx + at + j * W, g, lanes);
                carry[j] = factors[j].conjugate_times(g);
                if (p.ga_step == 0)
                    sum[j] += own;
                else
                    add(ga + example * p.ga_example + step * p.ga_step + block * W + j * W, own, lanes, example);
            }
        }
        for (int j = 0; j < N; ++j) carries[j] = carry[j], sums[j] += sum[j];
    }

    // The first example writes what examples share, the others add to it.
    INLINE void add(T* to, const V& own, int lanes, int64_t example) const {
        store(to, example > 0 && !p.ga_example ? load(to, lanes) + own : own, lanes);
    }
};

template <class T, bool COMPLEX>
void linear_forward(const LinearProblem& problem, T* h) {
    const Linear<T, COMPLEX> work(problem);
    const int threads = work.threads(work.tasks());
    const Rooms<Vector<T>> states(threads, work.scratch());
    for_each_task(work.tasks(), threads,
                  [&](int64_t task, int worker) { work.forward(task, h, states[worker]); });
}

template <class T, bool COMPLEX>
void linear_backward(const LinearProblem& problem, const T* h, T* gx, T* ga) {
    const Linear<T, COMPLEX> work(problem);
    const int threads = work.threads(work.backward_tasks());
    const Rooms<Vector<T>> scratch(threads, work.scratch());
    const Buffer<Vector<T>> sums(work.sums());
    for_each_task(work.backward_tasks(), threads, [&](int64_t task, int worker) {
        work.backward(task, h, gx, ga, sums.get(), scratch[worker]);
    });
    if (problem.ga_step == 0) work.sum_steps(sums.get(), ga);
}

template <class T>
void run_linear_forward(const LinearProblem& problem, T* h) {
    problem.complex ? linear_forward<T, true>(problem, h) : linear_forward<T, false>(problem, h);
}

template <class T>
void run_linear_backward(const LinearProblem& problem, const T* h, T* gx, T* ga) {
    problem.complex ? linear_backward<T, true>(problem, h, gx, ga) : linear_backward<T, false>(problem, h, gx, ga);
}
