/* Compute gradients from margins with the selection of select.h; included by pull.c once for each type. */

/* Find the positions of the values in [from, to], and return their number. */
INLINE int64_t NAME(gather)(const REAL *values, int64_t n, REAL from, REAL to, int32_t *places) {
    int64_t number = 0, begin = 0;
    for (; begin + CHUNK <= n; begin += CHUNK) {
        uint8_t inside[CHUNK];
        for (int i = 0; i < CHUNK; i++) inside[i] = (values[begin + i] >= from) & (values[begin + i] <= to);
        for (int part = 0; part < CHUNK; part += 8) {
            uint64_t any;
            memcpy(&any, inside + part, sizeof any);
            if (any)
                for (int i = part; i < part + 8; i++) places[number] = (int32_t)(begin + i), number += inside[i];
        }
    }
    for (; begin < n; begin++) {
        places[number] = (int32_t)begin;
        number += (values[begin] >= from) & (values[begin] <= to);
    }
    return number;
}

typedef struct {
    REAL *keys, *slopes, *room;    /* n each */
    double *near_mass, *room_mass; /* n each if any masses are given */
    int32_t *places;               /* n */
} NAME(Scratch);

/* Compute the pulls of a row's chosen examples only from those that the hint allows. Return their number, or -1 if the
 * hint does not hold; places and pulls are in the scratch. */
INLINE int64_t NAME(near)(const REAL *v, int64_t n, int loss, int kind, double k, const REAL *factor,
                          const double *mass, NAME(Scratch) s, double *hint) {
    int powers = kind == CLOSE && loss == LOGISTIC, found = 0;
    double center = hint[0] + hint[1], width = hint[2];
    int64_t number = 0, inside = 0, chosen = 0;
    NAME(Cut) cut = {0, 0, 1};
    for (int attempt = 0; attempt < 2 && !found; attempt++) {
        double low = center - (attempt ? 4 : 1) * width, high = 2 * center - low, target = k * (1 - 1e-12);
        if (!mass && !NAME(narrow)(v, n, loss, kind, target, n / 64 + 8, &low, &high)) continue;
        REAL from, to;
        NAME(reach)(high, loss, kind, &from, &to);
        width = (high - low) / 2;
        if (powers) low = NAME(key_at)(low), high = NAME(key_at)(high);
        number = NAME(gather)(v, n, from, to, s.places);
        for (int64_t i = 0; i < number; i++) s.slopes[i] = v[s.places[i]];
        NAME(keys_of)(s.slopes, s.keys, number, loss, kind);
        if (factor)
            for (int64_t i = 0; i < number; i++) s.keys[i] = factor[s.places[i]] > 0 ? s.keys[i] : LARGE;
        if (mass)
            for (int64_t i = 0; i < number; i++) s.near_mass[i] = mass[s.places[i]];
        found = NAME(between)(s.keys, mass ? s.near_mass : NULL, number, target, n / 64 + 8, &low, &high, s.room,
                              s.room_mass, &inside, &cut);
    }
    if (!found) return -1;
    NAME(learn)(hint, powers ? NAME(scale_of)((double)cut.edge) : (double)cut.edge, width, inside, n);
    REAL share = (REAL)((k - cut.below) / cut.tied);
    share = share > 1 ? 1 : share;
    for (int64_t i = 0; i < number; i++) {
        REAL weight = s.keys[i] < cut.edge ? 1 : s.keys[i] == cut.edge ? share : 0;
        int32_t place = s.places[i];
        s.slopes[chosen] = s.slopes[i] * weight * (factor ? factor[place] : 1);
        s.places[chosen] = place;
        chosen += weight > 0;
    }
    return chosen;
}

/* Do the same for only the k-th largest loss. */
INLINE int64_t NAME(kth)(const REAL *v, int64_t n, int loss, double k, const REAL *factor, const double *mass,
                         double total, NAME(Scratch) s, double *hint) {
    REAL most = loss == HINGE ? 1 : LARGE;
    for (int64_t i = 0; i < n; i++) s.keys[i] = -v[i] < most ? -v[i] : most;
    if (factor)
        for (int64_t i = 0; i < n; i++) s.keys[i] = factor[i] > 0 ? s.keys[i] : LARGE;
    NAME(Cut) cut = NAME(cut)(s.keys, mass, n, total, k, 0, s.room, s.room_mass, hint);
    int64_t chosen = NAME(gather)(s.keys, n, cut.edge, cut.edge, s.places);
    for (int64_t i = 0; i < chosen; i++) s.slopes[i] = v[s.places[i]];
    NAME(keys_of)(s.slopes, s.room, chosen, loss, TOP);
    for (int64_t i = 0; i < chosen; i++) s.slopes[i] *= (REAL)(1 / cut.tied) * (factor ? factor[s.places[i]] : 1);
    return chosen;
}

/* The hinge is flat beyond margin 1: all examples there tie at key 1, and their slopes are 0. If the k-th key is among
 * these ties, no search is needed. */
INLINE int NAME(flat)(const REAL *v, REAL *to, int64_t n, int kind, double k, double *hint) {
    REAL most = kind == CLOSE ? 1 : INFINITY;
    int32_t below = 0, edge = 0;
    for (int64_t i = 0; i < n; i++) below += (v[i] > -1) & (v[i] < most), edge += (v[i] <= -1) | (v[i] == most);
    if ((double)below >= k || (double)below + (double)edge < k) return 0;
    NAME(learn)(hint, 1, hint[2], n / 64 + 7, n);
    REAL share = (REAL)((k - (double)below) / (double)edge);
    for (int64_t i = 0; i < n; i++) to[i] = v[i] > -1 ? (v[i] < most ? 1 : v[i] == most ? share : 0) : 0;
    return 1;
}

/* Write the pulls of all examples to `to`, which may be v. */
INLINE void NAME(all)(REAL *v, REAL *to, int64_t n, int loss, int kind, double k, const REAL *factor,
                      const double *mass, double total, NAME(Scratch) s, double *hint) {
    REAL *keys = s.keys;
    NAME(keys_of)(v, keys, n, loss, kind);
    REAL edge = LARGE, share = 1;
    if (kind != AVERAGE) {
        if (factor)
            for (int64_t i = 0; i < n; i++) keys[i] = factor[i] > 0 ? keys[i] : LARGE;
        NAME(Cut) cut = NAME(cut)(keys, mass, n, total, k, kind == CLOSE && loss == LOGISTIC, s.room, s.room_mass, hint);
        edge = cut.edge, share = (REAL)((k - cut.below) / cut.tied);
        share = share > 1 ? 1 : share;
        for (int64_t i = 0; i < n; i++) {
            REAL weight = keys[i] == edge ? share : 0;
            to[i] = v[i] * (keys[i] < edge ? 1 : weight);
        }
    } else if (to != v) {
        memcpy(to, v, (size_t)n * sizeof(REAL));
    }
    if (factor)
        for (int64_t i = 0; i < n; i++) to[i] *= factor[i];
}

/* Compute the sum of pulls * rows of the design, four rows at a time. */
INLINE void NAME(sum)(const REAL *design, int64_t rank, const REAL *pulls, const int32_t *places, int64_t number,
                      REAL *gradient) {
    int64_t i = 0;
    memset(gradient, 0, (size_t)rank * sizeof(REAL));
    for (; i + 4 <= number; i += 4) {
        const REAL *a = design + places[i] * rank, *b = design + places[i + 1] * rank;
        const REAL *c = design + places[i + 2] * rank, *d = design + places[i + 3] * rank;
        REAL p = pulls[i], q = pulls[i + 1], r = pulls[i + 2], t = pulls[i + 3];
        for (int64_t j = 0; j < rank; j++) gradient[j] += (p * a[j] + q * b[j]) + (r * c[j] + t * d[j]);
    }
    for (; i < number; i++)
        for (int64_t j = 0; j < rank; j++) gradient[j] += pulls[i] * design[places[i] * rank + j];
}

/* Turn negated margins (rows x n) into gradients. Row i trains on fold folds[i]. For each fold, totals holds its mass;
 * factors holds NULL (all ones) or n masses as REAL; masses holds NULL (zeros and ones) or n masses as double. scratch:
 * 4 n REAL; room_mass: 2 n doubles if any masses are given; hints: rows x 3. If at most an eighth of the examples have
 * a pull, and the design (n x rank) is given, the gradient of the row is summed here. The pulls of the other rows are
 * left to a product: they move to the front of values, and `left` holds their rows. Return the number of these rows. */
EXPORT CLONES int64_t NAME(pull)(REAL *values, int64_t rows, int64_t n, const int32_t *losses, const int32_t *kinds,
                                 const int32_t *folds, const double *k, const double *totals,
                                 const REAL *const *factors, const double *const *masses, REAL *scratch,
                                 double *room_mass, double *hints, const REAL *design, int64_t rank, REAL *gradients,
                                 int64_t *left) {
    NAME(Scratch) s = {scratch, scratch + n, scratch + 2 * n, room_mass, room_mass + n, (int32_t *)(scratch + 3 * n)};
    int64_t remaining = 0;
    for (int64_t row = 0; row < rows; row++) {
        REAL *v = values + row * n, *to = values + remaining * n;
        const REAL *factor = factors[folds[row]];
        const double *mass = masses[folds[row]];
        double total = totals[folds[row]], *hint = hints + 3 * row;
        int loss = losses[row], kind = kinds[row];
        int64_t chosen = -1;
        int searched = kind == CLOSE || kind == LARGEST;
        if (searched && loss == HINGE && !factor && hint[2] >= 0 && hint[0] + fabs(hint[1]) + hint[2] >= 1 &&
            NAME(flat)(v, to, n, kind, k[row], hint)) {
            left[remaining++] = row;
            continue;
        }
        if (kind == TOP && loss == HINGE && !factor && hint[2] >= 0 && hint[0] >= 1) {
            int32_t sloped = 0; /* examples below margin 1: if there are fewer than k, the slope of the k-th is 0 */
            for (int64_t i = 0; i < n; i++) sloped += v[i] > -1;
            chosen = (double)sloped < k[row] ? 0 : -1;
        }
        if (kind == TOP && chosen < 0) {
            chosen = NAME(kth)(v, n, loss, k[row], factor, mass, total, s, hint);
        } else if (kind == CLOSE && hint[2] >= 0 && 3 * k[row] <= total && n >= 128) {
            chosen = NAME(near)(v, n, loss, kind, k[row], factor, mass, s, hint);
            hint[2] = chosen < 0 ? -1 : hint[2];
        }
        if (chosen >= 0 && design && chosen * 8 <= n) {
            NAME(sum)(design, rank, s.slopes, s.places, chosen, gradients + row * rank);
            continue;
        }
        if (chosen >= 0) {
            memset(to, 0, (size_t)n * sizeof(REAL));
            for (int64_t i = 0; i < chosen; i++) to[s.places[i]] = s.slopes[i];
        } else {
            NAME(all)(v, to, n, loss, kind, k[row], factor, mass, total, s, hint);
        }
        left[remaining++] = row;
    }
    return remaining;
}
