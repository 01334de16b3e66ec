// What the backward holds while it works.

// What one block of channels knows of one span, besides the inputs and the gradient of the output.
template <class T>
struct Channels {
    Span<T> x;
    Vector<T> gv[STEPS], grate[STEPS];  // gradients of v; of dt through the decay, over ln 2
    Vector<T> slopes[STEPS];            // of the softplus that made dt
};

template <class T>
struct alignas(PAGE) Scratch {
    // Blocks of channels a tile: 128 channels in float. The sums over lanes, and B and C, come once a tile: with
    // 64 channels, whose arrays would fit a first-level cache, the backward took a sixth longer.
    static constexpr int TILE = 512 / BYTES;

    Scratch(int64_t blocks, int64_t states, int64_t n, int64_t r, int64_t of_bank)
        : carry(blocks * states), gy(blocks * STEPS), tile(TILE), B(STEPS * n), C(STEPS * n),
          gB(STEPS / WIDTH<T> * n), gC(STEPS / WIDTH<T> * n), glow(r * STEPS), sums(SUMS), bank(of_bank) {
        std::fill_n(sums.get(), SUMS, Vector<T>{});
    }

    Buffer<Vector<T>> carry;    // (streams, blocks, n) gradients of the states that come from the span behind
    Buffer<Vector<T>> gy;       // (blocks, STEPS) gradients of the output
    Buffer<Channels<T>> tile;
    Buffer<T> B, C;             // (STEPS, n) of one span; C times mix
    Buffer<Vector<T>> gB, gC;   // (n, STEPS) as vectors; gC is not yet times mix
    Buffer<Vector<T>> glow;     // (r, STEPS), by lanes
    Buffer<Vector<T>> sums;     // see Backward::Sums; 0 but while some states are gone through
    Buffer<Vector<T>> bank;     // see Made
    T mix[STEPS];               // 1 where there is none
    Vector<T> gmix[STEPS];      // of mix through skip, by lanes

  private:
    static constexpr int SUMS = STEPS * 2 * MOST_STATES;
};

// Streams that a bank makes, one block of channels at one span: m arrays of STEPS and as many of gradients, and what
// the bank needs.
template <class T>
struct Made {
    Vector<T> *u, *gu;
    typename BankBackward<T>::Part part;
};
