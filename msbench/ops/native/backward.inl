// The backward: a task is one example, one stream or all of them, and a group of channels. It goes through the spans of
// steps from the last to the first; in each it runs the states forward again from where they were kept, and then their
// gradients backward. The order of every sum depends on shapes alone, so results are equal to the last bit for any
// number of threads.

template <class T>
class Backward {
    using V = Vector<T>;
    static constexpr int PARTS = STEPS / WIDTH<T>;  // vectors that hold a number of each step
    using Wanted = std::array<Ahead<T>, 2>;

    // Of one step of N states: their sums over the channels of a tile.
    template <int N>
    struct Sums {
        V gB[N], gC[N];
    };

    // Of one step of N states of one block: what they were before, and their decays.
    template <int N>
    struct Row {
        V before[N], decay[N];
    };

  public:
    Backward(const Plan<T>& plan, const T* gout, const V* kept, const ScanGradients& gradients, int64_t groups,
             const Partials<T>& partials, int threads)
        : p(plan), gout_(gout), kept_(kept), gu_(static_cast<T*>(gradients.u)),
          gdt_(static_cast<T*>(gradients.dt)), groups_(groups),
          together_(plan.bank || in_order(plan.b * groups, threads) ? plan.m : 1), partials_(partials) {
        if (p.bank) bank_ = std::make_unique<const BankBackward<T>>(*p.bank, gu_, STEPS);
    }

    // Groups of channels: 16 tasks, for the cores that there may be, as long as each has a whole tile, and where
    // that makes not even 4, as long as each has half of one.
    // With a bank, whose arrays are larger, one tile each.
    static int64_t groups(const Plan<T>& p) {
        const int64_t tiles = ceil_div(p.blocks, Scratch<T>::TILE), whole = p.b * (p.bank ? 1 : p.m);
        const int64_t large = p.bank ? tiles : std::min(tiles, ceil_div(16, whole));
        const int64_t small = std::min(2 * tiles, ceil_div(4, whole));
        return std::min(std::max(large, small), p.blocks);
    }

    // All streams in one task read and write memory in order, which saved 6 % of the backward. Streams do not depend
    // on each other, so whether they are together may follow the threads: it must leave none of them idle.
    static bool in_order(int64_t tasks, int threads) { return tasks % threads == 0 || tasks >= 4 * threads; }

    int64_t tasks() const { return p.b * parts() * groups_; }

    std::unique_ptr<Scratch<T>> scratch() const {
        const int64_t most = ceil_div(p.blocks, groups_), states = together_ == 1 ? p.n : p.states;
        return std::make_unique<Scratch<T>>(most, states, p.n, p.rank(), most * room());
    }

    void operator()(int64_t task, Scratch<T>& w) const {
        const int64_t group = task % groups_, part = task / groups_ % parts(), example = task / groups_ / parts();
        const Range range = {group * p.blocks / groups_, (group + 1) * p.blocks / groups_};
        const int64_t from = part * together_, to = from + together_;
        for (int64_t s = from; s < to; ++s) clear(example, s, range, carry(w, s, from, range));
        if (bank_) clear_bank(w, example, range);
        for (int64_t span = p.spans - 1; span >= 0; --span) {
            if (bank_) make(w, example, span, range);
            for (int64_t s = from; s < to; ++s) {
                const Place at = {example, span, s};
                if (s == from || !p.mix) read_output_gradient(w, at, range);
                stream(w, at, range, carry(w, s, from, range), group);
            }
            if (!bank_) continue;
            for (int64_t block = range.first; block < range.last; ++block) {
                const Made<T> own = made(w, example, span, range, block);
                bank_->retreat(own.part, Streams<T>::side_by_side(own.gu));
            }
        }
    }

  private:
    const Plan<T>& p;
    const T* const gout_;
    const V* const kept_;
    T *const gu_, *const gdt_;
    const int64_t groups_;
    const int64_t together_;  // streams a task
    const Partials<T>& partials_;
    std::unique_ptr<const BankBackward<T>> bank_;

    struct Range {
        int64_t first, last;  // blocks
    };

    int64_t parts() const { return p.m / together_; }
    // Vectors a block of channels, of those that Made holds.
    int64_t room() const { return bank_ ? 2 * p.m * STEPS + bank_->signals() + bank_->gradients() : 0; }

    V* carry(Scratch<T>& w, int64_t s, int64_t from, const Range& range) const {
        return w.carry.get() + (p.start(s) - p.start(from)) * (range.last - range.first);
    }

    void clear(int64_t example, int64_t s, const Range& range, V* carry) const {
        std::fill_n(carry, (range.last - range.first) * p.n, V{});
        for (int64_t block = range.first; block < range.last; ++block) {
            std::fill_n(grates(example, block, s), p.n, V{});
            gskip(example, block, s) = V{};
            std::fill_n(gsteps(example, block, s), p.rank() + 1, V{});
        }
    }

    void clear_bank(Scratch<T>& w, int64_t example, const Range& range) const {
        for (int64_t block = range.first; block < range.last; ++block) {
            const Made<T> own = made(w, example, 0, range, block);
            std::fill_n(own.part.gradients, bank_->gradients(), V{});
            std::fill_n(own.part.sums, BankBackward<T>::sums(*p.bank), V{});
        }
    }

    Made<T> made(Scratch<T>& w, int64_t example, int64_t span, const Range& range, int64_t block) const {
        V *const u = w.bank.get() + (block - range.first) * room(), *const gu = u + p.m * STEPS;
        V *const signals = gu + p.m * STEPS, *const gradients = signals + bank_->signals();
        V* const sums = partials_.bank.get() + (example * p.blocks + block) * BankBackward<T>::sums(*p.bank);
        return {u, gu, {example, span * STEPS, block, p.steps(span), signals, gradients, sums}};
    }

    void make(Scratch<T>& w, int64_t example, int64_t span, const Range& range) const {
        for (int64_t block = range.first; block < range.last; ++block) {
            const Made<T> own = made(w, example, span, range, block);
            bank_->recompute(own.part);
            bank_->streams(own.part, Streams<T>::side_by_side(own.u));
        }
    }

    void stream(Scratch<T>& w, const Place& at, const Range& range, V* carry, int64_t group) const {
        read_weights(w, at);
        for (int64_t block = range.first; block < range.last; block += Scratch<T>::TILE)
            tile(w, at, range, block, std::min<int64_t>(block + Scratch<T>::TILE, range.last),
                 carry + (block - range.first) * p.n, group);
        write_weights(w, at, group);
    }

    V* grates(int64_t example, int64_t block, int64_t s) const {
        return partials_.A.get() + (example * p.blocks + block) * p.states + p.start(s);
    }

    V* gsteps(int64_t example, int64_t block, int64_t s) const {
        return partials_.steps.get() + ((example * p.blocks + block) * p.m + s) * (p.rank() + 1);
    }

    V& gskip(int64_t example, int64_t block, int64_t s) const {
        return partials_.skip.get()[(example * p.blocks + block) * p.m + s];
    }

    void read_weights(Scratch<T>& w, const Place& at) const {
        std::fill_n(w.gB.get(), p.n * PARTS, V{});
        std::fill_n(w.gC.get(), p.n * PARTS, V{});
        std::fill_n(w.gmix, STEPS, V{});
        std::fill_n(w.glow.get(), p.rank() * STEPS, V{});
        const int64_t n = p.n, m = p.m, first = p.row(at, 0);
        const T *const B = p.B + first * n, *const C = p.C + first * n;
        T *const own_B = w.B.get(), *const own_C = w.C.get();
        for (int t = 0; t < p.steps(at.span); ++t) {
            const T mix = w.mix[t] = p.mix ? p.mix[first + t * m] : T{1};
            for (int64_t i = 0; i < n; i += WIDTH<T>) {
                const int lanes = static_cast<int>(std::min<int64_t>(WIDTH<T>, n - i));
                store(own_B + t * n + i, load(B + t * m * n + i, lanes), lanes);
                store(own_C + t * n + i, load(C + t * m * n + i, lanes) * mix, lanes);
            }
        }
    }

    void read_output_gradient(Scratch<T>& w, const Place& at, const Range& range) const {
        for (int64_t block = range.first; block < range.last; ++block)
            read_rows(gout_ + p.out_row(at, 0) * p.d + block * p.W, p.out_streams() * p.d, p.steps(at.span),
                      p.lanes(block), output_gradient(w, range, block));
    }

    V* output_gradient(Scratch<T>& w, const Range& range, int64_t block) const {
        return w.gy.get() + (block - range.first) * STEPS;
    }

    void tile(Scratch<T>& w, const Place& at, const Range& range, int64_t first, int64_t last, V* carry,
              int64_t group) const {
        V largest_dt = {};
        for (int64_t block = first; block < last; ++block) {
            const V own = read_inputs(w, w.tile.get()[block - first], at, range, block);
            largest_dt = own > largest_dt ? own : largest_dt;
        }
        const V* const gy = output_gradient(w, range, first);
        p.with_decay(at.s, largest<T>(largest_dt),
                     [&](auto how) { all_states<decltype(how)::value>(w, at, first, last, carry, gy, group); });
        for (int64_t block = first; block < last; ++block)
            write_inputs(w, w.tile.get()[block - first], at, range, block);
    }

    // Returns the largest dt of each lane.
    V read_inputs(Scratch<T>& w, Channels<T>& c, const Place& at, const Range& range, int64_t block) const {
        const V* const made_u = bank_ ? made(w, at.example, at.span, range, block).u + at.s * STEPS : nullptr;
        V room[STEPS];
        for (int t = 0; t < STEPS; ++t) c.gv[t] = c.grate[t] = V{};
        return c.x.read(p, at, block, input(p, at, block, made_u, room), c.slopes);
    }

    // What the span before reads, and where this one writes: two rows a step while the states from i on are computed.
    Wanted wanted(const Place& at, int64_t i, int64_t group) const {
        const int64_t here = p.row(at, 0), own = group * p.b * p.l * p.m + here, out = p.out_streams();
        const auto rows = [](const T* array, int64_t row, int64_t step, int64_t width) {
            return array ? Ahead<T>{array + row * width, step * width} : Ahead<T>{};
        };
        const auto next = [&](const T* array, int64_t width) {
            return rows(at.span > 0 ? array : nullptr, here - STEPS * p.m, p.m, width);
        };
        const T *const u = bank_ ? nullptr : p.u, *const gu = bank_ ? nullptr : gu_;
        const T* const gout = at.span > 0 ? gout_ : nullptr;
        switch (i / 4) {
            case 0: return {rows(gout, p.out_row(at, 0) - STEPS * out, out, p.d), rows(partials_.B, own, p.m, p.n)};
            case 1: return {next(p.dt, p.d), rows(partials_.C, own, p.m, p.n)};
            case 2: return {next(u, p.d), next(p.B, p.n)};
            case 3: return {rows(gu, here, p.m, p.d), next(p.C, p.n)};
            case 4: return {rows(gdt_, here, p.m, p.d), {}};
            default: return {};
        }
    }

    template <Decay HOW>
    void all_states(Scratch<T>& w, const Place& at, int64_t first, int64_t last, V* carry, const V* gy,
                    int64_t group) const {
        for_states<HOW>(p.n, [&](int64_t i, auto count, auto fresh) {
            some_states<HOW, decltype(count)::value, decltype(fresh)::value>(w, at, first, last, carry, gy, i, group);
        });
    }

    // N states of all channels of the tile: their sums over channels stay in vectors until the end.
    template <Decay HOW, int N, bool FIRST>
    void some_states(Scratch<T>& w, const Place& at, int64_t first, int64_t last, V* carry, const V* gy, int64_t i,
                     int64_t group) const {
        const Wanted ahead = wanted(at, i, group);
        Sums<N>* const sums = reinterpret_cast<Sums<N>*>(w.sums.get());
        for (int64_t block = first; block < last; ++block)
            sweep<HOW, N, FIRST>(w, at, w.tile.get()[block - first], ahead, block,
                                 carry + (block - first) * p.n + i, gy + (block - first) * STEPS, i, sums);
        for (int j = 0; j < N; ++j)
            for (int part = 0; part < PARTS; ++part) {
                V gB[WIDTH<T>], gC[WIDTH<T>];
                for (int t = 0; t < p.W; ++t) {
                    Sums<N>& own = sums[part * p.W + t];
                    gB[t] = own.gB[j], own.gB[j] = V{};
                    gC[t] = own.gC[j], own.gC[j] = V{};
                }
                w.gB.get()[(i + j) * PARTS + part] += sum_lanes<T>(gB);
                w.gC.get()[(i + j) * PARTS + part] += sum_lanes<T>(gC);
            }
    }

    // The states of one block over one span, forward and backward. A decay is made once a state and step, and waits in
    // the first-level cache.
    template <Decay HOW, int N, bool FIRST>
    INLINE void sweep(Scratch<T>& w, const Place& at, Channels<T>& c, const Wanted& ahead, int64_t block, V* carried,
                      const V* gout, int64_t i, Sums<N>* sums) const {
        Row<N> rows[STEPS];
        const int steps = p.steps(at.span);
        const int64_t own = p.start(at.s) + i;
        const V *const rates = p.rates.get() + block * p.states + own,
                *const kept = kept_ + p.kept(at.example, block, at.span) + own;
        V* const grates = this->grates(at.example, block, at.s) + i;
        const T *const B = w.B.get() + i, *const C = w.C.get() + i;
        const Decays<T, HOW, N, FIRST> decays(rates, c.x.dt, steps, c.x.last);
        V h[N], carry[N], sum[N], rate[N];
        for (int j = 0; j < N; ++j) {
            h[j] = kept[j], rate[j] = rates[j], carry[j] = carried[j], sum[j] = grates[j];
            if (at.span > 0) fetch_ahead(kept + j - p.states);  // the same states, kept one span earlier
        }
        for (int t = 0; t < steps; ++t) {
            ahead[0].fetch(block, t);
            ahead[1].fetch(block, t);
            decays.at(t, rows[t].decay);
            for (int j = 0; j < N; ++j) {
                rows[t].before[j] = h[j];
                h[j] = rows[t].decay[j] * h[j] + c.x.v[t] * B[t * p.n + j];
            }
        }
        for (int t = steps - 1; t >= 0; --t) {
            const V gy = gout[t], v = c.x.v[t], dt = c.x.dt[t];
            V gv = c.gv[t], grate = c.grate[t];
            for (int j = 0; j < N; ++j) {
                const V g = gy * C[t * p.n + j] + carry[j];
                sums[t].gC[j] += gy * h[j];
                h[j] = rows[t].before[j];
                sums[t].gB[j] += g * v;
                gv += g * B[t * p.n + j];
                carry[j] = g * rows[t].decay[j];
                const V through_decay = carry[j] * h[j];
                grate += through_decay * rate[j];
                sum[j] += through_decay * dt;
            }
            c.gv[t] = gv;
            c.grate[t] = grate;
        }
        for (int j = 0; j < N; ++j) carried[j] = flush<T>(carry[j]), grates[j] = sum[j];
    }

    void write_inputs(Scratch<T>& w, Channels<T>& c, const Place& at, const Range& range, int64_t block) const {
        constexpr T LN_2 = static_cast<T>(0.6931471805599453);
        const int lanes = p.lanes(block), steps = p.steps(at.span);
        const bool raw = p.raw;
        const V* const gout = output_gradient(w, range, block);
        V *made_u = nullptr, *made_gu = nullptr, room[STEPS], skip = {}, sum = {};
        if (bank_) {
            const Made<T> own = made(w, at.example, at.span, range, block);
            made_u = own.u + at.s * STEPS, made_gu = own.gu + at.s * STEPS;
        }
        const V* const us = input(p, at, block, made_u, room);
        if (p.skip) skip = load(p.skip + at.s * p.d + block * p.W, lanes);
        for (int t = 0; t < steps; ++t) {
            const V u = us[t], gv = c.gv[t], gy = gout[t] * w.mix[t];
            // The products in this order: which one is part of a fused multiply-add decides about the last bit.
            V gu = raw ? gv : gv * c.x.dt[t], gdt = raw ? V{} : gv * u;
            gu += skip * gy;
            gdt += c.grate[t] * LN_2;
            sum += gy * u;
            w.gmix[t] += gout[t] * (skip * u);
            c.gv[t] = gu;
            c.grate[t] = gdt;
        }
        const int64_t first = p.row(at, 0) * p.d + block * p.W, stride = p.m * p.d;
        if (bank_)
            std::copy_n(c.gv, steps, made_gu);
        else
            write_rows(gu_ + first, stride, steps, lanes, c.gv);
        if (gdt_) {
            write_rows(gdt_ + first, stride, steps, lanes, c.grate);
        } else {
            for (int t = 0; t < steps; ++t) c.grate[t] *= c.slopes[t];
            p.steps_of.add_gradients(p.row(at, 0), at.s, block, lanes, steps, c.grate,
                                     gsteps(at.example, block, at.s), w.glow.get());
        }
        gskip(at.example, block, at.s) += sum;
    }

    // Gradients of low, B, C and mix, which are sums over the channels of the group.
    void write_weights(Scratch<T>& w, const Place& at, int64_t group) const {
        const int64_t first = group * p.b * p.l * p.m;
        for (int part = 0; part < PARTS; ++part) {
            for (int64_t i = 0; i < p.n; i += p.W) write_states(w, at, first, part, i);
            for (int64_t k = 0; k < p.rank(); ++k) {
                const V sums = sum_lanes<T>(w.glow.get() + k * STEPS + part * p.W);
                for (int t = part * p.W; t < std::min((part + 1) * p.W, p.steps(at.span)); ++t)
                    partials_.low[(first + p.row(at, t)) * p.rank() + k] = sums[t - part * p.W];
            }
            if (!p.mix) continue;
            const V sums = sum_lanes<T>(w.gmix + part * p.W);
            for (int t = part * p.W; t < std::min((part + 1) * p.W, p.steps(at.span)); ++t)
                partials_.mix[first + p.row(at, t)] = sums[t - part * p.W];
        }
    }

    // WIDTH steps of WIDTH states.
    INLINE void write_states(Scratch<T>& w, const Place& at, int64_t first, int part, int64_t i) const {
        const int lanes = static_cast<int>(std::min<int64_t>(p.W, p.n - i));
        V gB[WIDTH<T>], gC[WIDTH<T>];
        for (int j = 0; j < p.W; ++j) {
            gB[j] = j < lanes ? w.gB.get()[(i + j) * PARTS + part] : V{};
            gC[j] = j < lanes ? w.gC.get()[(i + j) * PARTS + part] : V{};
        }
        transpose<T>(gB);
        transpose<T>(gC);
        for (int t = 0; t < std::min(p.W, p.steps(at.span) - part * p.W); ++t) {
            const int64_t row = p.row(at, part * p.W + t), from = row * p.n + i, to = from + first * p.n;
            w.gmix[part * p.W + t] += gC[t] * load(p.C + from, lanes);
            store(partials_.B + to, gB[t], lanes);
            store(partials_.C + to, p.mix ? gC[t] * p.mix[row] : gC[t], lanes);
        }
    }
};
