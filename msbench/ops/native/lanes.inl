// Vectors of channels. Included once for each instruction set, with BYTES the width of its registers.
// The vector types are those of GCC and Clang: arithmetic works element by element, a scalar is broadcast.

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
    typedef float V __attribute__((vector_size(BYTES)));
    typedef V Unaligned __attribute__((aligned(4), may_alias));
    typedef int32_t I __attribute__((vector_size(BYTES)));
    static constexpr float NEGLIGIBLE = 1e-30F;
};

template <>
struct Lanes<double> {
    typedef double V __attribute__((vector_size(BYTES)));
    typedef V Unaligned __attribute__((aligned(8), may_alias));
    typedef int64_t I __attribute__((vector_size(BYTES)));
    static constexpr double NEGLIGIBLE = 1e-290;
};

template <class T>
using Vector = typename Lanes<T>::V;

template <class T>
constexpr int WIDTH = BYTES / static_cast<int>(sizeof(T));

#define INLINE inline __attribute__((always_inline))

#if BYTES == 64
// Masks of AVX-512 take some lanes without a call.
INLINE Vector<float> load_part(const float* from, int lanes) {
    return (Vector<float>)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << lanes) - 1), from);
}

INLINE void store_part(float* to, const Vector<float>& x, int lanes) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << lanes) - 1), (__m512)x);
}
#endif

template <class T>
__attribute__((noinline)) Vector<T> load_part(const T* from, int lanes) {
    T x[WIDTH<T>] = {};
    std::copy_n(from, lanes, x);
    Vector<T> result;
    std::memcpy(&result, x, sizeof(x));
    return result;
}

template <class T>
__attribute__((noinline)) void store_part(T* to, const Vector<T>& x, int lanes) {
    std::memcpy(to, &x, sizeof(T) * static_cast<size_t>(lanes));
}

// Some first lanes, the others 0. A copy whose length is known only at run time is a call, so whole vectors,
// which are nearly all, go apart: with calls the forward at n = 16 took 14 ms, without 8.
template <class T>
INLINE Vector<T> load(const T* from, int lanes) {
    if (lanes == WIDTH<T>) return *reinterpret_cast<const typename Lanes<T>::Unaligned*>(from);
    return load_part(from, lanes);
}

template <class T>
INLINE void store(T* to, const Vector<T>& x, int lanes) {
    if (lanes == WIDTH<T>)
        *reinterpret_cast<typename Lanes<T>::Unaligned*>(to) = x;
    else
        store_part(to, x, lanes);
}

// Exponents of this size and more take the careful form of the exponential.
constexpr double MILD_LIMIT = 100;

// 2^(dt a). Polynomial of degree 5 on [-1/2, 1/2], exactly 1 at 0 (else slow decays would drift); relative
// error 1.7e-7 together with float's rounding. The first sum with SHIFT rounds to an integer, and leaves it in
// the low bits, from where it goes into the exponent. MILD: dt |a| < 100. Otherwise below -100 it is 0: 8e-31 is
// as negligible in a decay as in a state, and its products would be subnormal (see flush). Above 128 it is
// infinite. The two comparisons would add 4 to 13 instructions, so they are made only where needed.
template <bool MILD, int N>
INLINE void exp2_product(const Lanes<float>::V& dt, const Lanes<float>::V* a, Lanes<float>::V (&result)[N]) {
    using V = Lanes<float>::V;
    using I = Lanes<float>::I;
    constexpr float SHIFT = 12582912.0F;  // 1.5 * 2^23
    V shifted[N], f[N], p[N];
    for (int i = 0; i < N; ++i) {
        if (MILD) {
            shifted[i] = dt * a[i] + SHIFT;
            f[i] = dt * a[i] - (shifted[i] - SHIFT);
        } else {
            V x = dt * a[i];
            x = x < -100.0F ? V{} - 127.0F : x;  // -127 makes all bits 0; NaN stays NaN
            x = x > 128.0F ? V{} + 128.0F : x;
            shifted[i] = x + SHIFT;
            f[i] = x - (shifted[i] - SHIFT);
        }
    }
    for (int i = 0; i < N; ++i) p[i] = 0.0013264653F * f[i] + 0.009671511F;
    for (int i = 0; i < N; ++i) p[i] = p[i] * f[i] + 0.05550734F;
    for (int i = 0; i < N; ++i) p[i] = p[i] * f[i] + 0.24022242F;
    for (int i = 0; i < N; ++i) p[i] = p[i] * f[i] + 0.693147F;
    for (int i = 0; i < N; ++i) p[i] = p[i] * f[i] + 1.0F;
    for (int i = 0; i < N; ++i) result[i] = (V)((I)p[i] + ((I)shifted[i] << 23));
}

// In double precision, which is for checks, accuracy counts and speed does not.
template <bool MILD, int N>
INLINE void exp2_product(const Lanes<double>::V& dt, const Lanes<double>::V* a, Lanes<double>::V (&result)[N]) {
    for (int i = 0; i < N; ++i) {
        result[i] = dt * a[i];
        for (int lane = 0; lane < WIDTH<double>; ++lane) result[i][lane] = std::exp2(result[i][lane]);
    }
}

// How the decays of one stream over one span are made: with any exponent; with those below MILD_LIMIT; or, where
// neighbouring rates are near each other too, one in 16 by its exponential and the others each from the one before.
enum class Decay { CAREFUL, MILD, NEAR, NEARER };

// Exponents whose differences are below this are near: a polynomial of 2^x - 1 is then right to 2e-8. (Rates that are
// neighbouring integers are near for step sizes up to 0.2, nearer up to 0.1.)
template <Decay HOW>
constexpr double NEAR_LIMIT = HOW == Decay::NEARER ? 0.15 : 0.3;
// That of e^x - 1 in this range, without its first coefficient, which is 1: slow decays are exact.
template <Decay HOW>
constexpr std::array<double, 4> SERIES = {0.499999675, 0.16666662, 0.041726764, 0.008341917};
template <>
constexpr std::array<double, 4> SERIES<Decay::NEARER> = {0.50000042, 0.16674499, 0.04163081, 0.0};
// States from one exponential. More of them: 32 saved another 1 %, and the gradient of A lost half a digit.
constexpr int64_t FROM_ONE = 16;

// The decays 2^(dt rate) of N states over one span. Near ones are 2^(dt rate_(j-1)) (1 + a polynomial in dt): 6 (nearer
// 5) operations instead of 10, and decays near 1 stay so to the last bits but one. `last` then holds, of each step, the
// decay of the state before these N; where they are the FIRST it is made here, the exponentials of a span side by side:
// one alone is a chain of 45 cycles.
template <class T, Decay HOW, int N, bool FIRST>
class Decays {
    using V = Vector<T>;
    static constexpr bool BY_SERIES = (HOW == Decay::NEAR || HOW == Decay::NEARER) && sizeof(T) == sizeof(float);
    static constexpr int TERMS = HOW == Decay::NEARER ? 4 : 5;
    static constexpr int MADE = FIRST ? 1 : 0;  // of the N, by their exponential

  public:
    INLINE Decays(const V* rates, const V* dt, int steps, V* last) : rates_(rates), dt_(dt), last_(last) {
        if constexpr (BY_SERIES) {
            if (FIRST) first(steps);
            for (int j = MADE; j < N; ++j) {
                const V x = (rates[j] - rates[j - 1]) * static_cast<T>(0.6931471805599453);
                V power = terms_[j][0] = x;
                for (size_t k = 1; k < TERMS; ++k) {
                    power *= x;
                    terms_[j][k] = power * static_cast<T>(SERIES<HOW>[k - 1]);
                }
            }
        }
    }

    INLINE void at(int t, V (&result)[N]) const {
        const V dt = dt_[t];
        if constexpr (BY_SERIES) {
            V more[N], decay = last_[t];
            for (int j = MADE; j < N; ++j) more[j] = terms_[j][TERMS - 1] * dt + terms_[j][TERMS - 2];
            for (int k = TERMS - 3; k >= 0; --k)
                for (int j = MADE; j < N; ++j) more[j] = more[j] * dt + terms_[j][k];
            for (int j = MADE; j < N; ++j) more[j] = more[j] * dt;
            for (int j = 0; j < N; ++j) {
                if (j >= MADE) decay = decay * more[j] + decay;
                result[j] = decay;
            }
            last_[t] = decay;
        } else {
            exp2_product<HOW != Decay::CAREFUL, N>(dt, rates_, result);
        }
    }

  private:
    const V *const rates_, *const dt_;
    V* const last_;
    V terms_[BY_SERIES ? N : 1][TERMS];

    INLINE void first(int steps) const {
        int t = 0;
        for (; t + 4 <= steps; t += 4) {
            V made[4];
            exp2_product<true, 4>(rates_[0], dt_ + t, made);
            for (int k = 0; k < 4; ++k) last_[t + k] = made[k];
        }
        for (; t < steps; ++t) {
            V made[1];
            exp2_product<true, 1>(rates_[0], dt_ + t, made);
            last_[t] = made[0];
        }
    }
};

constexpr int MOST_STATES = 4;  // that are gone through at a time

// Calls run(i, N, FIRST) for all n states, N at a time.
template <Decay HOW, class Run>
INLINE void for_states(int64_t n, const Run& run) {
    constexpr int MOST = HOW == Decay::CAREFUL ? 2 : MOST_STATES;
    int64_t i = 0;
    const auto some = [&](auto count) {
        if (i % FROM_ONE == 0)
            run(i, count, std::true_type());
        else
            run(i, count, std::false_type());
        i += decltype(count)::value;
    };
    while (i + MOST <= n) some(std::integral_constant<int, MOST>());
    if (MOST > 2 && i + 2 <= n) some(std::integral_constant<int, 2>());
    if (i < n) some(std::integral_constant<int, 1>());
}

// Values on their way to 0 become 0 at the ends of spans of steps. Left to decay they turn subnormal, and
// then each instruction takes about 150 cycles; setting the processor's flush-to-zero mode instead would
// change the arithmetic of whoever calls.
template <class T>
INLINE Vector<T> flush(const Vector<T>& x) {
    constexpr T tiny = Lanes<T>::NEGLIGIBLE;
    return ((x < tiny) & (x > -tiny)) ? Vector<T>{} : x;
}

template <class T>
INLINE Vector<T> absolute(const Vector<T>& x) {
    return x < 0 ? -x : x;
}

// Lane K of the result is lane INDEX[K] of x followed by y.
#ifdef __clang__
#define SHUFFLE(x, y, INDEX) __builtin_shufflevector(x, y, INDEX...)
#else
#define SHUFFLE(x, y, INDEX) __builtin_shuffle(x, y, typename Lanes<T>::I{INDEX...})
#endif

// Exchange the lanes of x that have BIT with the lanes of y that do not.
template <class T, int BIT, int... K>
INLINE void exchange(Vector<T>& x, Vector<T>& y, std::integer_sequence<int, K...>) {
    constexpr int W = WIDTH<T>;
    const Vector<T> first = SHUFFLE(x, y, ((K & BIT) ? W + (K ^ BIT) : K));
    y = SHUFFLE(x, y, ((K & BIT) ? W + K : (K ^ BIT)));
    x = first;
}

// Transpose WIDTH vectors.
template <class T, int BIT = 1>
INLINE void transpose(Vector<T>* x) {
    if constexpr (BIT < WIDTH<T>) {
        for (int i = 0; i < WIDTH<T>; ++i)
            if (!(i & BIT)) exchange<T, BIT>(x[i], x[i + BIT], std::make_integer_sequence<int, WIDTH<T>>());
        transpose<T, 2 * BIT>(x);
    }
}

// Lane K of the result is the sum of lanes K and K ^ BIT: of x where K does not have BIT, else of y. The first shuffle
// leaves every lane in its place: it is a blend, which more than one port can do.
template <class T, int BIT, int... K>
INLINE Vector<T> sum_pairs(const Vector<T>& x, const Vector<T>& y, std::integer_sequence<int, K...>) {
    constexpr int W = WIDTH<T>;
    return SHUFFLE(x, y, ((K & BIT) ? W + K : K)) + SHUFFLE(x, y, ((K & BIT) ? W + (K ^ BIT) : (K ^ BIT)));
}

// Lane i of the result is the sum of the lanes of x[i]; x, of WIDTH vectors, is spent.
template <class T, int BIT = 1>
INLINE Vector<T> sum_lanes(Vector<T>* x) {
    if constexpr (BIT < WIDTH<T>) {
        for (int i = 0; i < WIDTH<T>; i += 2 * BIT)
            x[i] = sum_pairs<T, BIT>(x[i], x[i + BIT], std::make_integer_sequence<int, WIDTH<T>>());
        return sum_lanes<T, 2 * BIT>(x);
    }
    return x[0];
}

template <class T, int BIT, int... K>
INLINE Vector<T> larger_of_pairs(const Vector<T>& x, std::integer_sequence<int, K...>) {
    const Vector<T> other = SHUFFLE(x, x, (K ^ BIT));
    return other > x ? other : x;
}

template <class T, int BIT = 1>
INLINE T largest(const Vector<T>& x) {
    if constexpr (BIT < WIDTH<T>)
        return largest<T, 2 * BIT>(larger_of_pairs<T, BIT>(x, std::make_integer_sequence<int, WIDTH<T>>()));
    return x[0];
}

#undef SHUFFLE
