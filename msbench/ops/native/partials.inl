// Gradients before the sums over examples and groups of channels, and those sums, in the order of their numbers.

template <class T>
struct Partials {
    Partials(const Plan<T>& p, int64_t groups, const ScanGradients& gradients)
        : A(p.b * p.blocks * p.states), skip(p.b * p.blocks * p.m),
          weights(groups == 1 ? 0 : groups * p.b * p.l * p.m * (2 * p.n + 1)),
          B(static_cast<T*>(gradients.B)), C(static_cast<T*>(gradients.C)), mix(static_cast<T*>(gradients.mix)) {
        if (groups == 1) return;
        const int64_t rows = groups * p.b * p.l * p.m;
        B = weights.get();
        C = B + rows * p.n;
        mix = C + rows * p.n;
    }

    Buffer<Vector<T>> A, skip;  // (b, blocks, states), (b, blocks, m)
    Buffer<T> weights;          // empty for one group: B, C and mix are then the results themselves
    T *B, *C, *mix;             // (groups, b, l, m, n), same, (groups, b, l, m)
};

// Writes the gradients of A (m, d, n) and skip (m, d), one stream of one block of channels.
template <class T>
void sum_examples(const Plan<T>& p, const Partials<T>& partials, const ScanGradients& to, int64_t block, int64_t s) {
    for (int64_t i = 0; i < p.n; ++i) {
        Vector<T> sum = {};
        for (int64_t example = 0; i < p.count(s) && example < p.b; ++example)
            sum += partials.A.get()[(example * p.blocks + block) * p.states + p.start(s) + i];
        for (int lane = 0; lane < p.lanes(block); ++lane)
            static_cast<T*>(to.A)[(s * p.d + block * p.W + lane) * p.n + i] = sum[lane];
    }
    if (!p.skip) return;
    Vector<T> sum = {};
    for (int64_t example = 0; example < p.b; ++example)
        sum += partials.skip.get()[(example * p.blocks + block) * p.m + s];
    store(static_cast<T*>(to.skip) + s * p.d + block * p.W, sum, p.lanes(block));
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
    });
}
