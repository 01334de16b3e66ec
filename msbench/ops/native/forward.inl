// The forward: a task is one example and a few blocks of channels, with all streams where they are mixed.

template <class T>
class Forward {
    using V = Vector<T>;

  public:
    // out (b, l, d) where mixed, else (b, l, m, d); kept: null, or room for the states before each span.
    Forward(const Plan<T>& plan, T* out, V* kept, int threads)
        : p(plan), out_(out), kept_(kept), together_(plan.mix ? plan.m : 1), blocks_(blocks(threads)) {
        if (p.bank) bank_ = std::make_unique<const BankForward<T>>(*p.bank, STEPS);
    }

    int64_t tasks() const { return p.b * groups() * parts(); }
    int64_t scratch() const { return blocks_ * (p.states + signals() + STEPS) + p.m * STEPS; }

    void operator()(int64_t task, V* h) const {
        const int64_t s = task % parts() * together_, end = s + together_ - 1;
        const int64_t group = task / parts() % groups(), example = task / parts() / groups();
        const int64_t first = group * blocks_, last = std::min(first + blocks_, p.blocks);
        const int64_t states = p.start(end + 1) - p.start(s);
        V *const signal = h + states * blocks_, *const z = signal + signals() * blocks_;
        V* const streams = z + blocks_ * STEPS;
        std::fill_n(h, (states + signals()) * blocks_, V{});
        const int64_t at_once = bank_ ? 1 : blocks_;  // a bank makes the streams of one block after another
        for (int64_t span = 0; span < p.spans; ++span)
            for (int64_t block = first; block < last; block += at_once) {
                if (bank_)
                    bank_->advance(example, span * STEPS, block, signal + (block - first) * signals(),
                                   Streams<T>::side_by_side(streams));
                advance({example, span, s}, block, std::min(block + at_once, last), states,
                        h + (block - first) * states, streams, z);
            }
    }

  private:
    const Plan<T>& p;
    T* const out_;
    V* const kept_;
    const int64_t together_;  // streams a task
    const int64_t blocks_;    // blocks of channels a task
    std::unique_ptr<const BankForward<T>> bank_;

    // Neighbouring blocks in one task share pages: 4 rather than 1 saved 15 % at n = 16, and 17 % at 16384 steps. So as
    // many as leave no thread with more to do than it would have with fewer. Blocks do not depend on each other: this may
    // follow the threads.
    int64_t blocks(int threads) const {
        int64_t best = 1, least = std::numeric_limits<int64_t>::max();
        for (int64_t some = 1; some <= 8; some *= 2) {
            const int64_t size = std::min(some, p.blocks), tasks = p.b * parts() * ceil_div(p.blocks, size);
            const int64_t most = ceil_div(tasks, threads) * size;
            if (most <= least) best = size, least = most;
        }
        return best;
    }

    int64_t parts() const { return p.m / together_; }
    int64_t signals() const { return bank_ ? bank_->room() : 0; }
    int64_t groups() const { return ceil_div(p.blocks, blocks_); }

    // Stream after stream, so that B and C of one are in the first-level cache for all blocks.
    void advance(const Place& at, int64_t first, int64_t last, int64_t states, V* h, const V* streams, V* z) const {
        if (kept_ && at.span == 0)
            for (int64_t block = first; block < last; ++block)
                std::copy_n(h + (block - first) * states, states, kept_ + p.kept(at.example, block, 0) + p.start(at.s));
        std::fill_n(z, (last - first) * STEPS, V{});
        for (int64_t s = at.s; s < at.s + together_; ++s)
            for (int64_t block = first; block < last; ++block) {
                const Place here = {at.example, at.span, s};
                Span<T> x;
                V room[STEPS];
                const V* const u = input(p, here, block, bank_ ? streams + s * STEPS : nullptr, room);
                const T largest_dt = largest<T>(x.read(p, here, block, u, nullptr));
                V* const own = h + (block - first) * states + p.start(s) - p.start(at.s);
                p.with_decay(s, largest_dt, [&](auto how) {
                    stream<decltype(how)::value>(here, block, x, u, own, z + (block - first) * STEPS);
                });
            }
        for (int64_t block = first; block < last; ++block)
            write_rows(out_ + p.out_row(at, 0) * p.d + block * p.W, p.out_streams() * p.d, p.steps(at.span),
                       p.lanes(block), z + (block - first) * STEPS);
    }

    // Add the outputs of one stream to z.
    template <Decay HOW>
    void stream(const Place& at, int64_t block, Span<T>& x, const V* u, V* h, V* z) const {
        const V* rates = p.rates.get() + block * p.states + p.start(at.s);
        const T *B = p.B + p.row(at, 0) * p.n, *C = p.C + p.row(at, 0) * p.n;
        const int steps = p.steps(at.span);
        V skip = {}, y[STEPS];
        if (p.skip) skip = load(p.skip + at.s * p.d + block * p.W, p.lanes(block));
        for (int t = 0; t < steps; ++t) y[t] = skip * u[t];
        for_states<HOW>(p.n, [&](int64_t i, auto count, auto first) {
            update<HOW, decltype(count)::value, decltype(first)::value>(at, block, x, rates + i, B + i, C + i, h + i,
                                                                       y, i);
        });
        const T* const mix = p.mix ? p.mix + p.row(at, 0) : nullptr;
        for (int t = 0; t < steps; ++t) z[t] += mix ? y[t] * mix[t * p.m] : y[t];
    }

    // While the states from i on are computed; steps and streams that are made here come from nowhere.
    Ahead<T> wanted(const Place& at, int64_t i) const {
        if (at.span + 1 == p.spans) return {};
        const int64_t next = (p.row(at, 0) + STEPS * p.m) * p.d;
        if (i < 4) return p.dt ? Ahead<T>{p.dt + next, p.m * p.d} : Ahead<T>{};
        return i < 8 && !bank_ ? Ahead<T>{p.u + next, p.m * p.d} : Ahead<T>{};
    }

    // N states through one span, in registers. Their exponentials are interleaved, for one alone is a chain of
    // 45 cycles: with N = 1 the forward took 1.2 times as long as with 4.
    template <Decay HOW, int N, bool FIRST>
    INLINE void update(const Place& at, int64_t block, Span<T>& x, const V* rates, const T* B, const T* C,
                       V* state, V* y, int64_t i) const {
        const int steps = p.steps(at.span);
        const Ahead<T> ahead = wanted(at, i);
        // These states are kept as soon as they are there: a pass of its own over them took 2 % of the forward.
        V* const kept = kept_ && at.span + 1 < p.spans
                            ? kept_ + p.kept(at.example, block, at.span + 1) + p.start(at.s) + i
                            : nullptr;
        if (kept)
            for (int j = 0; j < N; ++j) __builtin_prefetch(kept + j, 1);
        const int64_t stride = p.m * p.n;
        const Decays<T, HOW, N, FIRST> decays(rates, x.dt, steps, x.last);
        V h[N];
        for (int j = 0; j < N; ++j) h[j] = state[j];
        for (int t = 0; t < steps; ++t, B += stride, C += stride) {
            V decay[N], out = y[t];
            ahead.fetch(block, t);
            decays.at(t, decay);
            for (int j = 0; j < N; ++j) {
                h[j] = decay[j] * h[j] + x.v[t] * B[j];
                out += h[j] * C[j];
            }
            y[t] = out;
        }
        for (int j = 0; j < N; ++j) state[j] = h[j] = flush<T>(h[j]);
        if (kept)
            for (int j = 0; j < N; ++j) kept[j] = h[j];
    }
};
