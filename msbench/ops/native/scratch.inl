// What the backward holds while it works.

// What one block of channels knows of one span, besides its inputs.
template <class T>
struct Channels {
    Span<T> x;
    Vector<T> gy[STEPS];                // gradient of the output
    Vector<T> gv[STEPS], grate[STEPS];  // of v; of dt through the decay, over ln 2
    Vector<T> slopes[STEPS];            // of the softplus that made dt
};

template <class T>
struct Scratch {
    // Blocks of channels a tile: 128 channels in float. The sums over lanes, and B and C, come once a tile: with
    // 64 channels, whose arrays would fit a first-level cache, the backward took a sixth longer.
    static constexpr int TILE = 512 / BYTES;

    Scratch(int64_t blocks, int64_t states, int64_t n, int64_t r, int64_t of_bank)
        : carry(blocks * states), tile(TILE), B(STEPS * n), C(STEPS * n), gB(STEPS / WIDTH<T> * n),
          gC(STEPS / WIDTH<T> * n), glow(r * STEPS), bank(of_bank) {}

    Buffer<Vector<T>> carry;    // (streams, blocks, n) gradients of the states that come from the span behind
    Buffer<Channels<T>> tile;
    Buffer<T> B, C;             // (STEPS, n) of one span; C times mix
    Buffer<Vector<T>> gB, gC;   // (n, STEPS) as vectors; gC is not yet times mix
    Buffer<Vector<T>> glow;     // (r, STEPS), by lanes
    Buffer<Vector<T>> bank;     // see Made
    Vector<T> gmix[STEPS];      // of mix through skip, by lanes
};

// Streams that a bank makes, one block of channels at one span: m arrays of STEPS and as many of gradients, and what
// the bank needs.
template <class T>
struct Made {
    Vector<T> *u, *gu;
    typename BankBackward<T>::Part part;
};
