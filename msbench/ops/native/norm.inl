// Batch norm over the real positions of a batch. Sums are those of runs of rows whose length depends on shapes
// alone, added in their order.

template <class T>
class Norm {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

  public:
    explicit Norm(const NormProblem& problem)
        : p(problem), x_(static_cast<const T*>(p.x)), mask_(static_cast<const T*>(p.mask)),
          blocks_(ceil_div(p.d, W)), run_(std::max<int64_t>(256, ceil_div(p.rows, 64))),
          tasks_(ceil_div(p.rows, run_)), threads_(threads_for(p.rows * p.d, tasks_, p.threads)) {
        for (int64_t row = 0; row < p.rows; ++row) count_ += static_cast<double>(mask_[row]);
        count_ = std::max(count_, 1.0);
    }

    void statistics(T* mean, T* var) const {
        const T share = static_cast<T>(1 / count_);
        total<1>([&](int64_t row, int64_t block, int lanes, V* sum) {
            sum[0] += load(x_ + at(row, block), lanes) * mask_[row];
        }, {mean}, share);
        total<1>([&](int64_t row, int64_t block, int lanes, V* sum) {
            const V centred = load(x_ + at(row, block), lanes) - load(mean + block * W, lanes);
            sum[0] += centred * centred * mask_[row];
        }, {var}, share);
    }

    void forward(const T* mean, const T* var, T* y) const {
        for_rows([&](int64_t first, int64_t last, int64_t block, int lanes) {
            const V centre = load(mean + block * W, lanes), scale = weight(block, lanes) * inverse(var, block, lanes);
            const V bias = load(static_cast<const T*>(p.bias) + block * W, lanes);
            for (int64_t row = first; row < last; ++row) {
                const V out = (load(x_ + at(row, block), lanes) - centre) * scale + bias;
                store(y + at(row, block), p.zero ? out * mask_[row] : out, lanes);
            }
        });
    }

    // Through the statistics too, which are those of this x.
    void backward(const T* mean, const T* var, const T* gy, T* gx, T* gweight, T* gbias) const {
        total<2>([&](int64_t row, int64_t block, int lanes, V* sum) {
            const V g = gradient(gy, row, block, lanes);
            sum[0] += g * (load(x_ + at(row, block), lanes) - load(mean + block * W, lanes));
            sum[1] += g;
        }, {gweight, gbias}, T{1});
        for (int64_t i = 0; i < p.d; ++i) gweight[i] /= std::sqrt(var[i] + static_cast<T>(p.epsilon));
        const T share = static_cast<T>(1 / count_);
        for_rows([&](int64_t first, int64_t last, int64_t block, int lanes) {
            const V centre = load(mean + block * W, lanes), rate = inverse(var, block, lanes);
            const V scale = weight(block, lanes) * rate;
            const V offset = load(gbias + block * W, lanes) * share;
            const V slope = load(gweight + block * W, lanes) * rate * share;
            for (int64_t row = first; row < last; ++row) {
                const V shared = offset + (load(x_ + at(row, block), lanes) - centre) * slope;
                store(gx + at(row, block), scale * (gradient(gy, row, block, lanes) - shared * mask_[row]), lanes);
            }
        });
    }

  private:
    const NormProblem& p;
    const T *const x_, *const mask_;
    const int64_t blocks_, run_, tasks_;
    const int threads_;
    double count_ = 0;

    int64_t at(int64_t row, int64_t block) const { return row * p.d + block * W; }
    int lanes(int64_t block) const { return static_cast<int>(std::min<int64_t>(W, p.d - block * W)); }
    INLINE V weight(int64_t block, int lanes) const {
        return load(static_cast<const T*>(p.weight) + block * W, lanes);
    }
    INLINE V inverse(const T* var, int64_t block, int lanes) const {
        V x = load(var + block * W, lanes) + static_cast<T>(p.epsilon);
        for (int i = 0; i < W; ++i) x[i] = 1 / std::sqrt(x[i]);
        return x;
    }
    INLINE V gradient(const T* gy, int64_t row, int64_t block, int lanes) const {
        const V g = load(gy + at(row, block), lanes);
        return p.zero ? g * mask_[row] : g;
    }

    // Calls work(first row, one past the last, block, lanes) for pieces of rows that stay in the cache.
    template <class Work>
    void for_pieces(int64_t task, const Work& work) const {
        const int64_t end = std::min(p.rows, (task + 1) * run_);
        for (int64_t row = task * run_; row < end; row += CHUNK)
            for (int64_t block = 0; block < blocks_; ++block)
                work(row, std::min(end, row + CHUNK), block, lanes(block));
    }

    template <class Work>
    void for_rows(const Work& work) const {
        for_each_task(tasks_, threads_, [&](int64_t task, int) { for_pieces(task, work); });
    }

    // Sums of N terms over all rows, times `factor`.
    template <int N, class Term>
    void total(const Term& term, std::array<T*, N> to, T factor) const {
        const Buffer<V> partials(tasks_ * blocks_ * N);
        for_each_task(tasks_, threads_, [&](int64_t task, int) {
            V* const own = partials.get() + task * blocks_ * N;
            std::fill_n(own, blocks_ * N, V{});
            for_pieces(task, [&](int64_t first, int64_t last, int64_t block, int lanes) {
                V sum[N] = {};
                for (int64_t row = first; row < last; ++row) term(row, block, lanes, sum);
                for (int i = 0; i < N; ++i) own[block * N + i] += sum[i];
            });
        });
        for (int64_t block = 0; block < blocks_; ++block)
            for (int i = 0; i < N; ++i) {
                V sum = {};
                for (int64_t task = 0; task < tasks_; ++task) sum += partials.get()[(task * blocks_ + block) * N + i];
                store(to[static_cast<size_t>(i)] + block * W, sum * factor, lanes(block));
            }
    }
};

template <class T>
void run_norm_statistics(const NormProblem& problem, T* mean, T* var) {
    Norm<T>(problem).statistics(mean, var);
}

template <class T>
void run_norm_forward(const NormProblem& problem, const T* mean, const T* var, T* y) {
    Norm<T>(problem).forward(mean, var, y);
}

template <class T>
void run_norm_backward(const NormProblem& problem, const T* mean, const T* var, const T* gy, T* gx, T* gweight,
                       T* gbias) {
    Norm<T>(problem).backward(mean, var, gy, gx, gweight, gbias);
}
