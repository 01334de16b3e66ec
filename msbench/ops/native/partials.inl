// Gradients before the sums over examples and groups of channels, and those sums, in the order of their numbers.

template <class T>
struct Partials {
    Partials(const Plan<T>& p, int64_t groups, const ScanGradients& gradients)
        : A(p.b * p.blocks * p.states), skip(p.b * p.blocks * p.m), steps(p.b * p.blocks * p.m * (p.rank() + 1)),
          bank(p.bank ? BankBackward<T>::partials(*p.bank) : 0),
          weights(groups == 1 ? 0 : groups * p.b * p.l * p.m * (2 * p.n + p.rank() + 1)),
          B(static_cast<T*>(gradients.B)), C(static_cast<T*>(gradients.C)), mix(static_cast<T*>(gradients.mix)),
          low(static_cast<T*>(gradients.low)) {
        if (groups == 1) return;
        const int64_t rows = groups * p.b * p.l * p.m;
        B = weights.get();
        C = B + rows * p.n;
        low = C + rows * p.n;
        mix = low + rows * p.rank();
    }

    Buffer<Vector<T>> A, skip;  // (b, blocks, states), (b, blocks, m)
    Buffer<Vector<T>> steps;    // (b, blocks, m, r + 1): of weight and bias
    Buffer<Vector<T>> bank;     // see BankBackward
    Buffer<T> weights;          // empty for one group: B, C, mix and low are then the results themselves
    T *B, *C, *mix, *low;       // (groups, b, l, m, n), same, (groups, b, l, m), (groups, b, l, m, r)
};

// Writes the gradients of A (m, d, n), skip (m, d), weight (m, r, d) and bias (m, d), one stream of one block of channels.
template <class T>
void sum_examples(const Plan<T>& p, const Partials<T>& partials, const ScanGradients& to, int64_t block, int64_t s) {
    for (int64_t i = 0; i < p.n; ++i) {
        Vector<T> sum = {};
        for (int64_t example = 0; example < p.b; ++example)
            sum += partials.A.get()[(example * p.blocks + block) * p.states + p.start(s) + i];
        for (int lane = 0; lane < p.lanes(block); ++lane)
            static_cast<T*>(to.A)[(s * p.d + block * p.W + lane) * p.n + i] = sum[lane];
    }
    const auto write = [&](const Vector<T>* parts, int64_t stride, void* out, int64_t row) {
        Vector<T> sum = {};
        for (int64_t example = 0; example < p.b; ++example)
            sum += parts[((example * p.blocks + block) * p.m + s) * stride];
        store(static_cast<T*>(out) + row * p.d + block * p.W, sum, p.lanes(block));
    };
    if (p.skip) write(partials.skip.get(), 1, to.skip, s);
    if (p.dt) return;
    for (int64_t k = 0; k < p.rank(); ++k)
        write(partials.steps.get() + k, p.rank() + 1, to.weight, s * p.rank() + k);
    write(partials.steps.get() + p.rank(), p.rank() + 1, to.bias, s);
}

// Adds `groups` arrays of `size` that lie behind one another, elements [from, to).
template <class T>
void sum_groups(const T* parts, int64_t groups, int64_t size, int64_t from, int64_t to, void* out) {
    T* const sum = static_cast<T*>(out);
    std::copy(parts + from, parts + to, sum + from);
    for (int64_t group = 1; group < groups; ++group)
        for (int64_t i = from; i < to; ++i) sum[i] += parts[group * size + i];
}

template <class T>
void sum_partials(const Plan<T>& p, const Partials<T>& partials, int64_t groups, const ScanGradients& to,
                  int threads) {
    const int64_t rows = p.l * p.m, all_rows = p.b * rows, blocks = p.blocks * p.m;
    for_each_task(blocks + (groups == 1 ? 0 : p.b), threads, [&](int64_t task, int) {
        if (task < blocks) return sum_examples(p, partials, to, task / p.m, task % p.m);
        const int64_t from = (task - blocks) * rows, end = from + rows;
        sum_groups(partials.B, groups, all_rows * p.n, from * p.n, end * p.n, to.B);
        sum_groups(partials.C, groups, all_rows * p.n, from * p.n, end * p.n, to.C);
        if (p.mix) sum_groups(partials.mix, groups, all_rows, from, end, to.mix);
        if (!p.dt) sum_groups(partials.low, groups, all_rows * p.rank(), from * p.rank(), end * p.rank(), to.low);
    });
}
