// The backward of the same, which needs no state of the forward. With a the decay and w the weight of a state, and
// from the last step to the first
//
//     q_t = a q_{t+1} + gy_t              p_t = a p_{t+1} + q_t
//
// its share of the gradient of u_t is w q_t, its weight's gradient is sum_t u_t q_t, and that of its log decay is
// w a sum_t u_t p_{t+1}: sum_{s<t} (t - s) a^{t-s} u_s gy_t, sorted by s. (p would do without the factor a if q were
// subtracted; but then fast decays, whose gradients are next to 0, would get the rounding errors of large ones.)

template <class T>
class LtiBackward {
    using V = Vector<T>;
    // States whose chains overlap; each has six registers.
    static constexpr int TOGETHER = BYTES == 64 ? 4 : 2;

  public:
    LtiBackward(const System<T>& system, const T* gout, T* gu)
        : sys(system), p(sys.p), gout_(gout), gu_(gu),
          tile_(std::clamp<int64_t>(p.b * p.m * sys.blocks / 16, 1, 4)), tiles_(ceil_div(sys.blocks, tile_)),
          groups_(std::clamp<int64_t>(ceil_div(16, p.m * tiles_), 1, p.b)) {}

    // Examples go in groups, whose number depends on shapes alone: 16 tasks, for the cores that there may be.
    int64_t groups() const { return groups_; }
    int64_t tasks() const { return groups_ * tiles_ * p.m; }
    int64_t scratch() const { return tile_ * 2 * p.n; }
    int64_t sums() const { return 2 * p.n + 1; }  // of a group, block and stream: of p, of q, of the skip

    // sums: (groups, blocks, m, sums())
    void operator()(int64_t task, V* sums, V* scratch) const {
        const int64_t s = task % p.m, tile = task / p.m % tiles_, group = task / p.m / tiles_;
        const int64_t first = tile * tile_, last = std::min(first + tile_, sys.blocks);
        const auto own = [&](int64_t block) {
            return sums + ((group * sys.blocks + block) * p.m + s) * this->sums();
        };
        for (int64_t block = first; block < last; ++block) std::fill_n(own(block), this->sums(), V{});
        for (int64_t example = group * p.b / groups_; example < (group + 1) * p.b / groups_; ++example) {
            std::fill_n(scratch, this->scratch(), V{});
            for (int64_t span = sys.spans - 1; span >= 0; --span)
                for (int64_t block = first; block < last; ++block)
                    retreat(example, span, s, block, own(block), scratch + (block - first) * 2 * p.n);
        }
    }

  private:
    const System<T>& sys;
    const LtiProblem& p;
    const T* const gout_;
    T* const gu_;
    const int64_t tile_, tiles_;  // blocks of channels a task: those of one row share pages
    const int64_t groups_;

    struct Span {
        V u[STEPS], gy[STEPS], gu[STEPS];
    };

    void retreat(int64_t example, int64_t span, int64_t s, int64_t block, V* sums, V* scratch) const {
        const int lanes = sys.lanes(block), steps = sys.steps(span);
        const V skip = sys.skipped(block, s);
        Span x;
        for (int t = 0; t < steps; ++t) {
            const int64_t row = sys.row(example, span, t, s), at = row * p.d + block * sys.W;
            const T* const from = gout_ + sys.out_row(example, span, t, s) * p.d + block * sys.W;
            __builtin_prefetch(sys.u + at - STEPS * p.m * p.d);
            __builtin_prefetch(gu_ + at - STEPS * p.m * p.d, 1);
            __builtin_prefetch(from - STEPS * sys.out_streams() * p.d);
            x.u[t] = load(sys.u + at, lanes);
            x.gy[t] = load(from, lanes);
            if (sys.mix) x.gy[t] *= sys.mix[row];
            x.gu[t] = skip * x.gy[t];
            sums[2 * p.n] += x.u[t] * x.gy[t];
        }
        if (sys.is_slow(block, s))
            stream<true>(x, steps, sys.pole(block, s), sums, scratch);
        else
            stream<false>(x, steps, sys.pole(block, s), sums, scratch);
        for (int t = 0; t < steps; ++t)
            store(gu_ + sys.row(example, span, t, s) * p.d + block * sys.W, x.gu[t], lanes);
    }

    template <bool SLOW_ONES>
    void stream(Span& x, int steps, const Pole<T>* poles, V* sums, V* scratch) const {
        for (int64_t i = 0, count; i < p.n; i += count) {
            count = next_group(p.n - i, TOGETHER);
            group<SLOW_ONES, TOGETHER>(count, x, steps, poles + i, sums + i, scratch + i);
        }
    }

    template <bool SLOW_ONES, int N>
    INLINE void group(int64_t count, Span& x, int steps, const Pole<T>* poles, V* sums, V* scratch) const {
        if (count == N) {
            if constexpr (SLOW_ONES) return slow_update<N>(x, steps, poles, sums, scratch);
            return update<N>(x, steps, poles, sums, scratch);
        }
        if constexpr (N > 1) group<SLOW_ONES, N - 1>(count, x, steps, poles, sums, scratch);
    }

    template <int N>
    INLINE void update(Span& x, int steps, const Pole<T>* poles, V* sums, V* scratch) const {
        V decay[N], weight[N], q[N], p_[N], sum_q[N] = {}, sum_p[N] = {};
        for (int j = 0; j < N; ++j) {
            decay[j] = poles[j].decay, weight[j] = poles[j].weight;
            p_[j] = scratch[j], q[j] = scratch[p.n + j];
        }
        for (int t = steps - 1; t >= 0; --t) {
            const V u = x.u[t], gy = x.gy[t];
            V gu = x.gu[t];
            for (int j = 0; j < N; ++j) {
                sum_p[j] += u * p_[j];
                q[j] = decay[j] * q[j] + gy;
                p_[j] = decay[j] * p_[j] + q[j];
                gu += weight[j] * q[j];
                sum_q[j] += u * q[j];
            }
            x.gu[t] = gu;
        }
        // STEPS steps take (p, q) to a^STEPS (p + STEPS q, q). A span that is not whole is the first: both were 0.
        for (int j = 0; j < N; ++j) {
            const V drift = poles[j].drift, before = scratch[p.n + j];
            scratch[j] = flush<T>(drift * (scratch[j] + static_cast<T>(STEPS) * before) + p_[j]);
            scratch[p.n + j] = flush<T>(drift * before + q[j]);
            sums[j] += sum_p[j], sums[p.n + j] += sum_q[j];
        }
    }

    // The same in terms of the changes since before the span, as in the forward.
    template <int N>
    INLINE void slow_update(Span& x, int steps, const Pole<T>* poles, V* sums, V* scratch) const {
        V q[N] = {}, p_[N] = {}, q_fall[N], p_rise[N], sum_q[N] = {}, sum_p[N] = {}, before = {}, all_u = {};
        for (int j = 0; j < N; ++j) {
            const V less_one = sys.less_one(poles)[j];
            q_fall[j] = less_one * scratch[p.n + j];
            p_rise[j] = less_one * scratch[j] + scratch[p.n + j];
            before += poles[j].weight * scratch[p.n + j];
        }
        for (int t = steps - 1; t >= 0; --t) {
            const V u = x.u[t], gy = x.gy[t];
            V gu = {};
            for (int j = 0; j < N; ++j) {
                sum_p[j] += u * p_[j];
                q[j] = poles[j].decay * q[j] + (gy + q_fall[j]);
                p_[j] = poles[j].decay * p_[j] + (q[j] + p_rise[j]);
                gu += poles[j].weight * q[j];
                sum_q[j] += u * q[j];
            }
            x.gu[t] += before + gu;
            all_u += u;
        }
        for (int j = 0; j < N; ++j) {
            sums[j] += sum_p[j] + all_u * scratch[j], sums[p.n + j] += sum_q[j] + all_u * scratch[p.n + j];
            scratch[j] = flush<T>(scratch[j] + p_[j]);
            scratch[p.n + j] = flush<T>(scratch[p.n + j] + q[j]);
        }
    }
};

// Writes the gradients of log decays, weights and skip, one stream of one block of channels.
template <class T>
void sum_gradients(const System<T>& sys, const Vector<T>* partials, int64_t groups, int64_t block, int64_t s,
                const LtiGradients& to) {
    const int64_t n = sys.p.n, count = 2 * n + 1;
    const auto sum = [&](int64_t i) {
        Vector<T> total = {};
        for (int64_t group = 0; group < groups; ++group)
            total += partials[((group * sys.blocks + block) * sys.p.m + s) * count + i];
        return total;
    };
    const int lanes = sys.lanes(block);
    for (int64_t i = 0; i < n; ++i) {
        const Pole<T>& pole = sys.pole(block, s)[i];
        const int64_t at = (s * n + i) * sys.p.d + block * sys.W;
        store(static_cast<T*>(to.log_decay) + at, pole.weight * (pole.decay * sum(i)), lanes);
        store(static_cast<T*>(to.weight) + at, sum(n + i), lanes);
    }
    if (sys.skip) store(static_cast<T*>(to.skip) + s * sys.p.d + block * sys.W, sum(2 * n), lanes);
}

// The gradient of mix for WIDTH steps: inner products of gout (rows, d) and kept (rows, m, d).
template <class T>
void mix_gradient(const System<T>& sys, const T* gout, const T* kept, int64_t first, T* gmix) {
    const int64_t count = std::min<int64_t>(sys.W, sys.p.b * sys.p.l - first);
    for (int64_t s = 0; s < sys.p.m; ++s) {
        Vector<T> sums[WIDTH<T>] = {};
        for (int64_t i = 0; i < count; ++i)
            for (int64_t block = 0; block < sys.blocks; ++block) {
                const int64_t row = first + i, c = block * sys.W;
                sums[i] += load(gout + row * sys.p.d + c, sys.lanes(block)) *
                           load(kept + (row * sys.p.m + s) * sys.p.d + c, sys.lanes(block));
            }
        const Vector<T> sum = sum_lanes<T>(sums);
        for (int64_t i = 0; i < count; ++i) gmix[(first + i) * sys.p.m + s] = sum[i];
    }
}

template <class T>
void run_lti_backward(const LtiProblem& problem, const T* gout, const T* kept, const LtiGradients& to) {
    const System<T> system(problem);
    const LtiBackward<T> work(system, gout, static_cast<T*>(to.u));
    const int threads = system.threads(work.tasks());
    const int64_t pairs = system.blocks * problem.m;
    const Buffer<Vector<T>> partials(work.groups() * pairs * work.sums());
    const Rooms<Vector<T>> scratch(threads, work.scratch());
    for_each_task(work.tasks(), threads,
                  [&](int64_t task, int worker) { work(task, partials.get(), scratch[worker]); });
    for_each_task(pairs, threads, [&](int64_t task, int) {
        sum_gradients(system, partials.get(), work.groups(), task / problem.m, task % problem.m, to);
    });
    if (!to.mix) return;
    for_each_task(ceil_div(problem.b * problem.l, system.W), threads, [&](int64_t task, int) {
        mix_gradient(system, gout, kept, task * system.W, static_cast<T*>(to.mix));
    });
}
