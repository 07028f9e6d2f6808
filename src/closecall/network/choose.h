/* From scores to the derivatives by the margins: losses, exact selection, masses. The search is the solver's. */
enum { RANGE = 4 }; /* beyond the solver's kinds: the largest losses but for the m largest */

/* weights += sign * (mass k of the smallest keys), as shares of each example's mass; hint as in the solver's `cut`. */
INLINE void take(const float *keys, int64_t n, const double *masses, double total, double k, float sign, int powers,
                 float *room, double *room_mass, double *hint, float *weights) {
    Cut_f32 cut = cut_f32(keys, masses, n, total, k, powers, room, room_mass, hint);
    double part = (k - cut.below) / cut.tied;
    float share = (float)(part > 1 ? 1 : part < 0 ? 0 : part);
    for (int64_t i = 0; i < n; i++) {
        float tied = keys[i] == cut.edge ? share : 0;
        weights[i] += sign * (keys[i] < cut.edge ? 1 : tied);
    }
}

/* `top`: one unit of mass that ends where the tied group of the k-th key ends. A group of less borrows from the keys
 * before it. */
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

/* Minus margins -> minus derivatives of the aggregate by the margins, in place. scratch: 3 n floats. */
INLINE void choose(float *v, int64_t n, int loss, int kind, double k, double m, double total, const float *factors,
                   const double *masses, float *scratch, double *room_mass, double *hint) {
    float *keys = scratch, *room = scratch + n, *weights = scratch + 2 * n;
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
