/* Included by pull.c once for each type: REAL, NAME(x), LARGE. */

typedef struct {
    REAL edge;    /* the smallest key at which the mass reaches k */
    double below; /* mass of the keys under it */
    double tied;  /* mass of the keys equal to it */
} NAME(Cut);

/* Weighted quickselect: `keys` and, unless NULL, `mass` are permuted. `reached` is the mass known to lie below. */
static NAME(Cut) NAME(search)(REAL *keys, double *mass, int64_t n, double reached, double k) {
    uint64_t random = 0x9E3779B97F4A7C15u;
    int64_t begin = 0, end = n;
    NAME(Cut) cut = {n ? keys[0] : 0, reached, 0};
    while (begin < end) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        REAL pivot = keys[begin + (int64_t)((random >> 33) % (uint64_t)(end - begin))];
        int64_t low = begin, high = end;
        double below = 0, tied = 0;
        for (int64_t i = begin; i < high;) { /* three ways: ties must not make it quadratic */
            REAL key = keys[i];
            double m = mass ? mass[i] : 1.0;
            if (key < pivot) {
                below += m;
                keys[i] = keys[low], keys[low] = key;
                if (mass) mass[i] = mass[low], mass[low] = m;
                low++, i++;
            } else if (key > pivot) {
                high--;
                keys[i] = keys[high], keys[high] = key;
                if (mass) mass[i] = mass[high], mass[high] = m;
            } else {
                tied += m;
                i++;
            }
        }
        if (reached + below >= k) {
            end = low;
        } else {
            cut.edge = pivot, cut.below = reached + below, cut.tied = tied;
            if (cut.below + tied >= k) return cut;
            reached = cut.below + tied;
            begin = high;
        }
    }
    return cut; /* k is more than all the mass, by rounding: the largest key */
}

/* One pass: the keys below `low` are counted, those up to `high` searched. Is the key at which the mass reaches k there? */
INLINE int NAME(between)(const REAL *keys, const double *mass, int64_t n, double k, REAL low, REAL high, REAL *room,
                         double *room_mass, int64_t *number, NAME(Cut) *cut) {
    int64_t inside = 0, count = 0;
    double under = 0;
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        int size = n - begin < CHUNK ? (int)(n - begin) : CHUNK;
        const REAL *part = keys + begin;
        int32_t less = 0, most = 0;
        if (size == CHUNK) { /* a constant length vectorises */
            for (int i = 0; i < CHUNK; i++) less += part[i] < low, most += part[i] <= high;
        } else {
            for (int i = 0; i < size; i++) less += part[i] < low, most += part[i] <= high;
        }
        count += less;
        if (mass)
            for (int i = 0; i < size; i++) under += part[i] < low ? mass[begin + i] : 0.0;
        if (most != less)
            for (int i = 0; i < size; i++) {
                room[inside] = part[i];
                if (mass) room_mass[inside] = mass[begin + i];
                inside += (part[i] >= low) & (part[i] <= high);
            }
    }
    double reached = mass ? under : (double)count;
    *number = inside;
    if (inside == 0 || reached >= k) return 0;
    *cut = NAME(search)(room, mass ? room_mass : NULL, inside, reached, k);
    return cut->below + cut->tied >= k;
}

/* Where the mass of the smallest keys reaches k. hint: the edge of the last time, its drift, and how far around the sum
 * of both to look (negative: nothing is known); on the scale of |loss - threshold|, so as logarithms if `powers`. */
INLINE NAME(Cut) NAME(cut)(const REAL *keys, const double *mass, int64_t n, double total, double k, int powers,
                           REAL *room, double *room_mass, double *hint) {
    NAME(Cut) cut;
    int64_t inside = 0;
    double target = k * (1 - 1e-12), center = hint[0] + hint[1], width = hint[2];
    int found = 0;
    for (int attempt = 0; attempt < 2 && !found && width >= 0 && n >= 128; attempt++) {
        double low = center - width, high = center + width;
        if (powers) low = exp(low), high = exp(high);
        width *= attempt ? 1 : 4;
        found = NAME(between)(keys, mass, n, target, (REAL)low, (REAL)high, room, room_mass, &inside, &cut);
        if (found && attempt == 0) width /= 4;
    }
    if (!found && n >= 2048) { /* a sample says where to look, three standard deviations either way */
        int64_t size = 512, step = n / size;
        double share = target / total, slip = 3 * sqrt(share * (1 - share) / (double)size);
        for (int64_t i = 0; i < size; i++) room[i] = keys[i * step];
        double low = fmax(share - slip, 0) * (double)size + 1, high = fmin(share + slip, 1) * (double)size;
        REAL from = NAME(search)(room, NULL, size, 0, fmin(low, (double)size)).edge;
        REAL to = NAME(search)(room, NULL, size, 0, fmax(high, 1)).edge;
        found = NAME(between)(keys, mass, n, target, from, to, room, room_mass, &inside, &cut);
    }
    if (!found) {
        memcpy(room, keys, (size_t)n * sizeof(REAL));
        if (mass) memcpy(room_mass, mass, (size_t)n * sizeof(double));
        cut = NAME(search)(room, mass ? room_mass : NULL, n, 0, target);
        inside = n;
    }
    double edge = powers ? log((double)cut.edge) : (double)cut.edge, missed = fabs(edge - center);
    if (hint[2] < 0) {
        hint[1] = 0, hint[2] = 0.02 * fabs(edge);
    } else { /* aim at few keys inside, but look further than the last guess was off */
        double scale = (double)(n / 64 + 8) / (double)(inside + 1);
        hint[1] = edge - hint[0];
        hint[2] = fmax(2 * missed, width * (scale > 2 ? 2 : scale < 0.5 ? 0.5 : scale));
    }
    hint[0] = edge;
    return cut;
}

/* Keys that order the examples, smallest first, and the slopes in place of the minus margins. */
INLINE void NAME(keys_of)(REAL *v, REAL *keys, int64_t n, int loss, int kind) {
    if (kind == CLOSE && loss == LOGISTIC) {
        for (int64_t i = 0; i < n; i++) {
            /* beyond STEEP the exponential goes on as a straight line: examples far out stay in order */
            REAL near = v[i] < STEEP ? v[i] : STEEP, beyond = v[i] - near;
            REAL half = (1 + NAME(exp)(near) * (1 + beyond)) * (REAL)0.5, twice = 1 / half;
            keys[i] = half > twice ? half : twice;
            v[i] = 1 - twice * (REAL)0.5;
        }
    } else if (kind == CLOSE) {
        for (int64_t i = 0; i < n; i++) {
            REAL cut = v[i] > -1 ? v[i] : -1;
            keys[i] = cut < 0 ? -cut : cut;
            v[i] = v[i] > -1 ? 1 : 0;
        }
    } else if (loss == LOGISTIC) {
        for (int64_t i = 0; i < n; i++) {
            keys[i] = -v[i];
            v[i] = 1 / (1 + NAME(exp)(-v[i]));
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            keys[i] = -v[i] < 1 ? -v[i] : 1;
            v[i] = v[i] > -1 ? 1 : 0;
        }
    }
}

#ifndef PARTS_ALONE
/* rows x n minus margins become pulls. Row i trains on fold folds[i]: totals are the folds' masses; factors[fold] is NULL
 * (all ones) or n masses as REAL, masses[fold] NULL (zeros and ones) or the same as doubles. scratch: 2 n REAL, room_mass:
 * n doubles if any masses are given. hints: rows x 3. */
EXPORT CLONES void NAME(pull)(REAL *values, int64_t rows, int64_t n, const int32_t *losses, const int32_t *kinds,
                              const int32_t *folds, const double *k, const double *totals, const REAL *const *factors,
                              const double *const *masses, REAL *scratch, double *room_mass, double *hints) {
    REAL *keys = scratch, *room = scratch + n;
    for (int64_t row = 0; row < rows; row++) {
        REAL *v = values + row * n;
        int kind = kinds[row];
        const REAL *factor = factors[folds[row]];
        NAME(keys_of)(v, keys, n, losses[row], kind);
        if (kind != AVERAGE) {
            if (factor)
                for (int64_t i = 0; i < n; i++) keys[i] = factor[i] > 0 ? keys[i] : LARGE;
            NAME(Cut) cut = NAME(cut)(keys, masses[folds[row]], n, totals[folds[row]], k[row],
                                      kind == CLOSE && losses[row] == LOGISTIC, room, room_mass, hints + 3 * row);
            REAL edge = cut.edge, inside = kind == TOP ? 0 : 1;
            REAL share = (REAL)(kind == TOP ? 1 / cut.tied : (k[row] - cut.below) / cut.tied);
            share = share > 1 && kind != TOP ? 1 : share;
            for (int64_t i = 0; i < n; i++) {
                REAL weight = keys[i] == edge ? share : 0;
                v[i] *= keys[i] < edge ? inside : weight;
            }
        }
        if (factor)
            for (int64_t i = 0; i < n; i++) v[i] *= factor[i];
    }
}
#endif
