/* From scores to derivatives with respect to the margins: losses, exact selection, masses. The search is that of the
 * solver. */
enum { RANGE = 4 }; /* in addition to the kinds of the solver: the largest losses except the m largest */

#define ONE_OF(mask, yes, no) ((Vec)(((mask) & (Ints)(yes)) | (~(mask) & (Ints)(no))))

/* The solver's exp_f32, eight at a time: the compiler does not vectorise its clamps for AVX2. */
INLINE Vec exp_vec(Vec x) {
    Vec one = {0}, low = one - 87, high = one + 87;
    one += 1;
    x = ONE_OF(x < low, low, x);
    x = ONE_OF(x > high, high, x);
    Vec shifted = x * 1.44269504088896341f + 12582912.0f, n = shifted - 12582912.0f;
    Vec r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
    Vec p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + one;
    p = p * r + one;
    Ints bits = ((Ints)shifted + 127) << 23;
    return p * (Vec)bits;
}

/* The solver's keys_of for the logistic loss; v and keys have room for whole vectors. */
INLINE void logistic_keys(float *v, float *keys, int64_t n, int close) {
    Vec steep = {0};
    steep += (float)STEEP;
    for (int64_t i = 0; i < n; i += LANES) {
        Vec x = load(v + i);
        if (close) {
            Vec near = ONE_OF(x < steep, x, steep), half = (1 + exp_vec(near) * (1 + (x - near))) * 0.5f, twice = 1 / half;
            store(keys + i, ONE_OF(half > twice, half, twice));
            store(v + i, 1 - twice * 0.5f);
        } else {
            store(keys + i, -x);
            store(v + i, 1 / (1 + exp_vec(-x)));
        }
    }
}

/* weights += sign * (mass k of the smallest keys), as shares of each example's mass; hint as in the solver's `cut`. */
ONCE void take(const float *keys, int64_t n, const double *masses, double total, double k, float sign, int powers,
                 float *room, double *room_mass, double *hint, float *weights) {
    Cut_f32 cut = cut_f32(keys, masses, n, total, k, powers, room, room_mass, hint);
    double part = (k - cut.below) / cut.tied;
    float share = (float)(part > 1 ? 1 : part < 0 ? 0 : part);
    for (int64_t i = 0; i < n; i++) {
        float tied = keys[i] == cut.edge ? share : 0;
        weights[i] += sign * (keys[i] < cut.edge ? 1 : tied);
    }
}

/* `top`: one unit of mass that ends where the tied group of the k-th key ends. A group with less mass borrows from the
 * keys before it. */
INLINE void take_top(const float *keys, int64_t n, const double *masses, double total, double k, float *room,
                     double *room_mass, double *hint, float *weights) {
    Cut_f32 cut = cut_f32(keys, masses, n, total, k, 0, room, room_mass, hint);
    if (cut.tied >= 1) {
        float share = (float)(1 / cut.tied);
        for (int64_t i = 0; i < n; i++) weights[i] = keys[i] == cut.edge ? share : 0;
        return;
    }
    double end = cut.below + cut.tied, none[3] = {0, 0, -1};
    end = end < 1 ? 1 : end;
    end = end > total ? total : end;
    take(keys, n, masses, total, end, 1, 0, room, room_mass, none, weights);
    none[2] = -1;
    if (end - 1 > 1e-9) take(keys, n, masses, total, end - 1, -1, 0, room, room_mass, none, weights);
}

/* Negated margins -> negated derivatives of the aggregate with respect to the margins, in place. v and scratch have
 * room for n and 3 n floats in whole vectors. */
ONCE void choose(float *v, int64_t n, int loss, int kind, double k, double m, double total, const float *factors,
                   const double *masses, float *scratch, double *room_mass, double *hint) {
    int64_t room_for = (n + LANES - 1) / LANES * LANES;
    float *keys = scratch, *room = scratch + room_for, *weights = scratch + 2 * room_for;
    if (loss == LOGISTIC)
        logistic_keys(v, keys, n, kind == CLOSE);
    else
        keys_of_f32(v, keys, n, loss, kind);
    if (kind != AVERAGE) {
        k = k < total ? k : total;
        for (int64_t i = 0; i < n; i++) weights[i] = 0;
        if (kind == TOP)
            take_top(keys, n, masses, total, k, room, room_mass, hint, weights);
        else
            take(keys, n, masses, total, k, 1, kind == CLOSE && loss == LOGISTIC, room, room_mass, hint, weights);
        if (kind == RANGE && m > 0) {
            double none[3] = {0, 0, -1};
            take(keys, n, masses, total, m, -1, 0, room, room_mass, none, weights);
        }
        for (int64_t i = 0; i < n; i++) v[i] *= weights[i];
    }
    if (factors)
        for (int64_t i = 0; i < n; i++) v[i] *= factors[i];
}
