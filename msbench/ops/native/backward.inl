// The backward: a task is one example, one stream and a group of channels. It goes through the spans of
// steps from the last to the first; in each it runs the states forward again from where they were kept, and
// then their gradients backward. Tasks, and the order of every sum, depend on shapes alone, so results are
// equal to the last bit for any number of threads.

// What one block of channels knows of one span, besides its inputs.
template <class T>
struct Channels {
    Span<T> x;
    Vector<T> gy[STEPS];                // gradient of the output
    Vector<T> gv[STEPS], grate[STEPS];  // of v; of dt through the decay, over ln 2
};

template <class T>
struct Scratch {
    // Blocks of channels a tile: 128 channels in float. The sums over lanes, and B and C, come once a tile: with
    // 64 channels, whose arrays would fit a first-level cache, the backward took a sixth longer.
    static constexpr int TILE = 512 / BYTES;

    Scratch(int64_t blocks, int64_t n)
        : carry(blocks * n), tile(TILE), B(STEPS * n), C(STEPS * n), gB(STEPS / WIDTH<T> * n),
          gC(STEPS / WIDTH<T> * n) {}

    Buffer<Vector<T>> carry;    // (blocks, n) gradients of the states that come from the span behind
    Buffer<Channels<T>> tile;
    Buffer<T> B, C;             // (STEPS, n) of one span; C times mix
    Buffer<Vector<T>> gB, gC;   // (n, STEPS) as vectors; gC is not yet times mix
    Vector<T> gmix[STEPS];      // of mix through skip, by lanes
};

template <class T>
class Backward {
    using V = Vector<T>;
    static constexpr int PARTS = STEPS / WIDTH<T>;  // vectors that hold a number of each step

  public:
    Backward(const Plan<T>& plan, const T* gout, const V* kept, const ScanGradients& gradients, int64_t groups,
             const Partials<T>& partials)
        : p(plan), gout_(gout), kept_(kept), gu_(static_cast<T*>(gradients.u)),
          gdt_(static_cast<T*>(gradients.dt)), groups_(groups), partials_(partials) {}

    // Groups of channels: 16 tasks, for the cores that there may be, as long as each has a whole tile, and where
    // that makes not even 4, as long as each has half of one.
    static int64_t groups(const Plan<T>& p) {
        const int64_t tiles = ceil_div(p.blocks, Scratch<T>::TILE), whole = p.b * p.m;
        const int64_t large = std::min(tiles, ceil_div(16, whole)), small = std::min(2 * tiles, ceil_div(4, whole));
        return std::min(std::max(large, small), p.blocks);
    }

    int64_t tasks() const { return p.b * p.m * groups_; }

    void operator()(int64_t task, Scratch<T>& w) const {
        const int64_t group = task % groups_, s = task / groups_ % p.m, example = task / groups_ / p.m;
        const int64_t first = group * p.blocks / groups_, last = (group + 1) * p.blocks / groups_;
        std::fill_n(w.carry.get(), (last - first) * p.count(s), V{});
        for (int64_t block = first; block < last; ++block) {
            std::fill_n(grates(example, block, s), p.count(s), V{});
            gskip(example, block, s) = V{};
        }
        for (int64_t span = p.spans - 1; span >= 0; --span) {
            const Place at = {example, span, s};
            read_weights(w, at);
            for (int64_t block = first; block < last; block += Scratch<T>::TILE)
                tile(w, at, block, std::min<int64_t>(block + Scratch<T>::TILE, last),
                     w.carry.get() + (block - first) * p.count(s));
            write_weights(w, at, group);
        }
    }

  private:
    const Plan<T>& p;
    const T* const gout_;
    const V* const kept_;
    T *const gu_, *const gdt_;
    const int64_t groups_;
    const Partials<T>& partials_;

    V* grates(int64_t example, int64_t block, int64_t s) const {
        return partials_.A.get() + (example * p.blocks + block) * p.states + p.start(s);
    }

    V& gskip(int64_t example, int64_t block, int64_t s) const {
        return partials_.skip.get()[(example * p.blocks + block) * p.m + s];
    }

    void read_weights(Scratch<T>& w, const Place& at) const {
        std::fill_n(w.gB.get(), p.count(at.s) * PARTS, V{});
        std::fill_n(w.gC.get(), p.count(at.s) * PARTS, V{});
        std::fill_n(w.gmix, STEPS, V{});
        for (int t = 0; t < p.steps(at.span); ++t) {
            const int64_t row = p.row(at, t);
            const T mix = p.mix ? p.mix[row] : T{1};
            for (int64_t i = 0; i < p.count(at.s); ++i) {
                w.B.get()[t * p.n + i] = p.B[row * p.n + i];
                w.C.get()[t * p.n + i] = p.C[row * p.n + i] * mix;
            }
        }
    }

    void tile(Scratch<T>& w, const Place& at, int64_t first, int64_t last, V* carry) const {
        T largest_dt = 0;
        for (int64_t block = first; block < last; ++block) {
            Channels<T>& c = w.tile.get()[block - first];
            largest_dt = std::max(largest_dt, c.x.read(p, at, block, -STEPS));
            read_output_gradient(c, at, block);
        }
        if (p.mild(at.s, largest_dt))
            all_states<true>(w, at, first, last, carry);
        else
            all_states<false>(w, at, first, last, carry);
        for (int64_t block = first; block < last; ++block) write_inputs(w, w.tile.get()[block - first], at, block);
    }

    void read_output_gradient(Channels<T>& c, const Place& at, int64_t block) const {
        for (int t = 0; t < p.steps(at.span); ++t) {
            const T* const from = gout_ + p.out_row(at, t) * p.d + block * p.W;
            const int64_t to = p.row(at, t) * p.d + block * p.W;
            __builtin_prefetch(from - STEPS * p.out_streams() * p.d);
            __builtin_prefetch(gu_ + to, 1);
            __builtin_prefetch(gdt_ + to, 1);
            c.gy[t] = load(from, p.lanes(block));
            c.gv[t] = c.grate[t] = V{};
        }
    }

    template <bool MILD>
    void all_states(Scratch<T>& w, const Place& at, int64_t first, int64_t last, V* carry) const {
        const int64_t count = p.count(at.s);
        int64_t i = 0;
        if constexpr (MILD)
            for (; i + 4 <= count; i += 4) some_states<MILD, 4>(w, at, first, last, carry, i);
        for (; i + 2 <= count; i += 2) some_states<MILD, 2>(w, at, first, last, carry, i);
        if (i < count) some_states<MILD, 1>(w, at, first, last, carry, i);
    }

    // N states of all channels of the tile: their sums over channels stay in vectors until the end.
    template <bool MILD, int N>
    void some_states(Scratch<T>& w, const Place& at, int64_t first, int64_t last, V* carry, int64_t i) const {
        V gB[N][STEPS], gC[N][STEPS];
        std::fill_n(gB[0], N * STEPS, V{});
        std::fill_n(gC[0], N * STEPS, V{});
        for (int64_t block = first; block < last; ++block)
            sweep<MILD, N>(w.tile.get()[block - first], p.steps(at.span),
                           p.rates.get() + block * p.states + p.start(at.s) + i,
                           kept_ + p.kept(at.example, block, at.span) + p.start(at.s) + i, w.B.get() + i,
                           w.C.get() + i, carry + (block - first) * p.count(at.s) + i,
                           grates(at.example, block, at.s) + i, gB, gC);
        for (int j = 0; j < N; ++j)
            for (int part = 0; part < PARTS; ++part) {
                w.gB.get()[(i + j) * PARTS + part] += sum_lanes<T>(gB[j] + part * p.W);
                w.gC.get()[(i + j) * PARTS + part] += sum_lanes<T>(gC[j] + part * p.W);
            }
    }

    // The states of one block over one span, forward and backward. One exponential a state and step: the
    // decays wait in the first-level cache.
    template <bool MILD, int N>
    INLINE void sweep(Channels<T>& c, int steps, const V* rates, const V* kept, const T* B, const T* C, V* carried,
                      V* grates, V (&gB)[N][STEPS], V (&gC)[N][STEPS]) const {
        V decay[STEPS][N], h[STEPS + 1][N], carry[N], sum[N];
        for (int j = 0; j < N; ++j) {
            h[0][j] = kept[j], carry[j] = carried[j], sum[j] = grates[j];
            __builtin_prefetch(kept + j - p.states);  // the same states, kept one span earlier
        }
        for (int t = 0; t < steps; ++t) {
            exp2_product<MILD>(c.x.dt[t], rates, decay[t]);
            for (int j = 0; j < N; ++j) h[t + 1][j] = decay[t][j] * h[t][j] + c.x.v[t] * B[t * p.n + j];
        }
        for (int t = steps - 1; t >= 0; --t) {
            const V gy = c.gy[t], v = c.x.v[t], dt = c.x.dt[t];
            V gv = c.gv[t], grate = c.grate[t];
            for (int j = 0; j < N; ++j) {
                const V g = gy * C[t * p.n + j] + carry[j];
                gC[j][t] += gy * h[t + 1][j];
                gB[j][t] += g * v;
                gv += g * B[t * p.n + j];
                carry[j] = g * decay[t][j];
                const V through_decay = carry[j] * h[t][j];
                grate += through_decay * rates[j];
                sum[j] += through_decay * dt;
            }
            c.gv[t] = gv;
            c.grate[t] = grate;
        }
        for (int j = 0; j < N; ++j) carried[j] = flush<T>(carry[j]), grates[j] = sum[j];
    }

    void write_inputs(Scratch<T>& w, const Channels<T>& c, const Place& at, int64_t block) const {
        constexpr T LN_2 = static_cast<T>(0.6931471805599453);
        const int lanes = p.lanes(block);
        V skip = {}, sum = {};
        if (p.skip) skip = load(p.skip + at.s * p.d + block * p.W, lanes);
        for (int t = 0; t < p.steps(at.span); ++t) {
            const int64_t row = p.row(at, t);
            const V u = c.x.u[t], gy = p.mix ? c.gy[t] * p.mix[row] : c.gy[t];
            V gu = skip * gy, gdt = c.grate[t] * LN_2;
            gu += p.raw ? c.gv[t] : c.gv[t] * c.x.dt[t];
            if (!p.raw) gdt += c.gv[t] * u;
            sum += gy * u;
            w.gmix[t] += c.gy[t] * (skip * u);
            store(gu_ + row * p.d + block * p.W, gu, lanes);
            store(gdt_ + row * p.d + block * p.W, gdt, lanes);
        }
        gskip(at.example, block, at.s) += sum;
    }

    // Gradients of B, C and mix, which are sums over the channels of the group.
    void write_weights(Scratch<T>& w, const Place& at, int64_t group) const {
        const int64_t first = group * p.b * p.l * p.m;
        for (int part = 0; part < PARTS; ++part) {
            for (int64_t i = 0; i < p.n; i += p.W) write_states(w, at, first, part, i);
            if (!p.mix) continue;
            const V sums = sum_lanes<T>(w.gmix + part * p.W);
            for (int t = part * p.W; t < std::min((part + 1) * p.W, p.steps(at.span)); ++t)
                partials_.mix[first + p.row(at, t)] = sums[t - part * p.W];
        }
    }

    // WIDTH steps of WIDTH states, those that are not in use as 0.
    INLINE void write_states(Scratch<T>& w, const Place& at, int64_t first, int part, int64_t i) const {
        const int lanes = static_cast<int>(std::min<int64_t>(p.W, p.n - i));
        const int used = static_cast<int>(std::clamp<int64_t>(p.count(at.s) - i, 0, p.W));
        V gB[WIDTH<T>], gC[WIDTH<T>];
        for (int j = 0; j < p.W; ++j) {
            gB[j] = j < used ? w.gB.get()[(i + j) * PARTS + part] : V{};
            gC[j] = j < used ? w.gC.get()[(i + j) * PARTS + part] : V{};
        }
        transpose<T>(gB);
        transpose<T>(gC);
        for (int t = 0; t < std::min(p.W, p.steps(at.span) - part * p.W); ++t) {
            const int64_t row = p.row(at, part * p.W + t), from = row * p.n + i, to = from + first * p.n;
            w.gmix[part * p.W + t] += gC[t] * load(p.C + from, used);
            store(partials_.B + to, gB[t], lanes);
            store(partials_.C + to, p.mix ? gC[t] * p.mix[row] : gC[t], lanes);
        }
    }
};
