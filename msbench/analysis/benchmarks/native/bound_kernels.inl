// The bounds for one instruction set: included once for each, inside a namespace and with BYTES set.

#include "../../../ops/native/lanes.inl"

// Hides from the compiler what x holds, so that it neither leaves out nor moves nor shares what is computed from it. No
// instruction.
template <class V>
INLINE void hide(V& x) {
#if defined(__x86_64__)
    asm volatile("" : "+v"(x));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(x));
#else
    asm volatile("" : "+m"(x));
#endif
}

// The updates of N states at one step as Forward and Backward of ops/native make them, in registers instead of arrays: as
// many multiplications, additions, fused ones and exponentials, but none waits for another of the same update where the
// scan adds up over states. What is left are the chains of h and carry from update to update, of 4 and 8 cycles, while
// an update keeps two ports busy for 16 and 30. On Zen 4, whose two ports take halves of 64 bytes, the loops reach 98 to
// 100 % of the rate of a loop of FMAs alone at 26 states.
template <class T>
class Arithmetic {
    using V = Vector<T>;
    static constexpr int N = MOST_STATES, TERMS = 4;

  public:
    static constexpr int RESULTS = 3;  // of the last update: y, the gradients of v and of the rate
    static constexpr int64_t UPDATES = N * WIDTH<T>;

    template <bool BACKWARD>
    INLINE void run(int64_t n, int64_t rounds) {
        for (int64_t round = 0; round < rounds; ++round)
            for (int64_t i = 0; i < n; ++i) {
                if (i % FROM_ONE == 0)
                    update<BACKWARD, true>();
                else
                    update<BACKWARD, false>();
            }
    }

    INLINE void write(T* found) const { found[0] = y[0], found[1] = gv[0], found[2] = grate[0]; }

  private:
    V h[N] = {}, carry[N] = {}, y = {}, gv = {}, grate = {};
    V ones = V{} + 1.0F;  // inputs, gradients, starts of sums
    // Step size, rate, the decay of the state before, the terms of a series.
    V dt = V{} + 0.5F, rate = V{} - 1.5F, last = V{} + 0.75F;
    V terms[TERMS] = {V{} - 0.25F, V{} + 0.125F, V{} - 0.0625F, V{} + 0.03125F};

    // See Decays::at.
    INLINE void near(V (&decays)[N]) {
        V more[N];
        for (int j = 0; j < N; ++j) hide(dt), more[j] = terms[TERMS - 1] * dt + terms[TERMS - 2];
        for (int k = TERMS - 3; k >= 0; --k)
            for (int j = 0; j < N; ++j) more[j] = more[j] * dt + terms[k];
        for (int j = 0; j < N; ++j) more[j] = more[j] * dt;
        for (int j = 0; j < N; ++j) decays[j] = last * more[j] + last;
    }

    // See Decays::first.
    INLINE void by_exponential(V (&decays)[N]) {
        V rates[N];
        for (int j = 0; j < N; ++j) hide(rate), rates[j] = rate;
        exp2_product<true, N>(dt, rates, decays);
    }

    template <bool BACKWARD, bool FIRST>
    INLINE void update() {
        V decays[N];
        if constexpr (FIRST)
            by_exponential(decays);
        else
            near(decays);
        for (int j = 0; j < N; ++j) {
            if constexpr (BACKWARD)
                backward(decays[j], h[j], carry[j]);
            else
                forward(decays[j], h[j]);
        }
    }

    // See Forward::update.
    INLINE void forward(const V& decay, V& h) {
        hide(ones);
        h = decay * h + ones * ones;
        y = ones + h * ones;
        hide(y);
    }

    // See Backward::sweep.
    INLINE void backward(const V& decay, V& h, V& carry) {
        const V before = h;
        hide(ones);
        h = decay * h + ones * ones;
        hide(ones);
        const V g = ones * ones + carry;
        V gC = ones + ones * h, gB = ones + g * ones;
        hide(gC), hide(gB), hide(ones);
        gv = ones + g * ones;
        carry = g * decay;
        const V through_decay = carry * before;
        V sum = ones + through_decay * dt;
        grate = ones + through_decay * rate;
        hide(sum), hide(gv), hide(grate);
    }
};

template <class T>
void run_arithmetic(const ArithmeticProblem& p, T* found, int64_t* updates) {
    using Loop = Arithmetic<T>;
    *updates = p.rounds * p.n * Loop::UPDATES * p.threads;
    for_each_task(p.threads, p.threads, [&](int64_t task, int) {
        Loop loop;
        if (p.backward)
            loop.template run<true>(p.n, p.rounds);
        else
            loop.template run<false>(p.n, p.rounds);
        loop.write(found + task * Loop::RESULTS);
    });
}

// In chains enough for two loads a cycle.
template <class T>
double sum_of(const T* from, int64_t count) {
    constexpr int W = WIDTH<T>, CHAINS = 8;
    Vector<T> sums[CHAINS] = {};
    int64_t i = 0;
    for (; i + CHAINS * W <= count; i += CHAINS * W)
        for (int chain = 0; chain < CHAINS; ++chain) sums[chain] += load(from + i + chain * W, W);
    double sum = 0;
    for (const Vector<T>& each : sums)
        for (int lane = 0; lane < W; ++lane) sum += static_cast<double>(each[lane]);
    for (; i < count; ++i) sum += static_cast<double>(from[i]);
    return sum;
}

// Pieces of both arrays, the same share of each. Written by the C library, which knows the best way to.
template <class T>
void run_traffic(const TrafficProblem& p, double* sum) {
    constexpr int64_t PIECE = 1 << 16;
    const int64_t pieces = ceil_div(std::max(p.read, p.written), PIECE);
    std::vector<double> sums(static_cast<size_t>(pieces));
    for_each_task(pieces, p.threads, [&](int64_t piece, int) {
        const int64_t from = p.read * piece / pieces, to = p.read * (piece + 1) / pieces;
        sums[static_cast<size_t>(piece)] = sum_of(p.from + from, to - from);
        const int64_t first = p.written * piece / pieces, end = p.written * (piece + 1) / pieces;
        if (end > first) std::memset(p.to + first, 1, sizeof(T) * static_cast<size_t>(end - first));
    });
    *sum = 0;
    for (const double each : sums) *sum += each;
}

#undef INLINE
#undef BYTES
