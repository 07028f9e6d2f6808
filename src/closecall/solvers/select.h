/* Find the exact k-th smallest key; included by pull.c once for each type (REAL, NAME(x), LARGE, EPSILON). */

typedef struct {
    REAL edge;    /* the smallest key at which the mass reaches k */
    double below; /* the mass of smaller keys */
    double tied;  /* the mass of equal keys */
} NAME(Cut);

/* Weighted quickselect: `keys` and, unless NULL, `mass` are permuted. `reached` is the mass of keys known to be smaller. */
static NAME(Cut) NAME(search)(REAL *keys, double *mass, int64_t n, double reached, double k) {
    uint64_t random = 0x9E3779B97F4A7C15u;
    int64_t begin = 0, end = n;
    NAME(Cut) cut = {n ? keys[0] : 0, reached, 0};
    while (begin < end) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        REAL pivot = keys[begin + (int64_t)((random >> 33) % (uint64_t)(end - begin))];
        int64_t low = begin, high = end;
        double below = 0, tied = 0;
        for (int64_t i = begin; i < high;) { /* three-way, because ties would make a two-way partition quadratic */
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
    return cut; /* k exceeds the total mass by a rounding error: return the largest key */
}

/* The scale on which the edge of a close logistic problem is tracked, because keys crowd below 2: the margin of a correct
 * example with this key or, beyond FAR, where there is none, the margin of a wrong one. */
INLINE double NAME(scale_of)(double key) {
    return key < 2 ? fmin(-log(2 / fmax(key, 1) - 1), FAR) : FAR + log((2 * key - 1) / 3);
}

INLINE double NAME(key_at)(double x) {
    return x < FAR ? 2 / (1 + exp(-fmax(x, 0))) : 0.5 + 1.5 * exp(x - FAR);
}

/* The range of negated margins whose keys can be at most `high` (on the scale above for a close logistic problem). It
 * is slightly too wide: keys and bounds are rounded, and no key outside it may be rounded to `high` or less. */
INLINE void NAME(reach)(double high, int loss, int kind, REAL *from, REAL *to) {
    if (kind != CLOSE || loss != LOGISTIC) high = (double)(REAL)high; /* keys are REAL */
    double low = kind == KEYS || high >= 1 ? -INFINITY : -high, top = high;
    if (kind == CLOSE && loss == LOGISTIC) {
        double most = NAME(key_at)(high) * (1 + 64 * (double)EPSILON);
        low = most < 2 ? log(2 / most - 1) : -INFINITY, top = log(2 * most - 1);
        low -= 4 * (double)EPSILON * fabs(low), top += 4 * (double)EPSILON * top;
        if (top >= STEEP) top = INFINITY;
    }
    *from = (REAL)low, *to = (REAL)top;
}

/* Narrow the bracket of the k-th key while many keys are inside: counting is cheaper than searching. `values` are
 * negated margins, or the keys themselves (KEYS). Return whether the k-th key is inside. */
INLINE int NAME(narrow)(const REAL *values, int64_t n, int loss, int kind, double k, int64_t enough, double *low,
                        double *high) {
    double a = *low, b = *high;
    int64_t under = 0, upto = n;
    for (int round = 0; round < 7 && upto - under > enough; round++) {
        double wide = *high - *low, place = (k - (double)under) / (double)(upto - under);
        if (round % 2) { /* around the position of the k-th key if the keys inside are evenly spaced */
            a = fmax(*low + wide * (place - 0.0625), *low), b = fmin(*low + wide * (place + 0.0625), *high);
        } else if (round) { /* they may not be evenly spaced: use thirds */
            a = *low + wide / 3, b = *high - wide / 3;
        }
        REAL from_a, to_a, from_b, to_b;
        NAME(reach)(a, loss, kind, &from_a, &to_a), NAME(reach)(b, loss, kind, &from_b, &to_b);
        int32_t less = 0, most = 0; /* places are 32 bits wide too, and narrow counters vectorise better */
        for (int64_t i = 0; i < n; i++) {
            less += (values[i] >= from_a) & (values[i] <= to_a);
            most += (values[i] >= from_b) & (values[i] <= to_b);
        }
        if (round == 0 && ((double)less >= k || (double)most < k)) return 0;
        if ((double)less >= k) {
            *high = a, upto = less;
        } else if ((double)most < k) {
            *low = b, under = most;
        } else {
            *low = a, *high = b, under = less, upto = most;
        }
    }
    return 1;
}

/* Count the keys below `low` and search those up to `high`. Return whether the mass reaches k there. */
INLINE int NAME(between)(const REAL *keys, const double *mass, int64_t n, double k, int64_t enough, double *from,
                         double *to, REAL *room, double *room_mass, int64_t *number, NAME(Cut) *cut) {
    if (!mass && !NAME(narrow)(keys, n, 0, KEYS, k, enough, from, to)) return 0;
    REAL low = (REAL)*from, high = (REAL)*to;
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

/* Update the hint for the next step: the edge, its drift, and how far around their sum to search. */
INLINE void NAME(learn)(double *hint, double edge, double width, int64_t inside, int64_t n) {
    if (hint[2] < 0) {
        hint[1] = 0, hint[2] = 0.02 * fabs(edge);
    } else { /* aim for few keys inside, but search at least twice as far as the last error */
        double scale = (double)(n / 64 + 8) / (double)(inside + 1), missed = fabs(edge - hint[0] - hint[1]);
        hint[1] = edge - hint[0];
        hint[2] = fmax(2 * missed, width * (scale > 2 ? 2 : scale < 0.5 ? 0.5 : scale));
    }
    hint[0] = edge;
}

/* Find the key at which the mass of the smallest keys reaches k. The hint is that of learn, with a negative width if
 * nothing is known, and on the scale of `scale_of` if `powers`. */
INLINE NAME(Cut) NAME(cut)(const REAL *keys, const double *mass, int64_t n, double total, double k, int powers,
                           REAL *room, double *room_mass, double *hint) {
    NAME(Cut) cut;
    int64_t inside = 0;
    double target = k * (1 - 1e-12), center = hint[0] + hint[1], width = hint[2];
    int found = 0;
    for (int attempt = 0; attempt < 2 && !found && hint[2] >= 0 && n >= 128; attempt++) {
        double low = center - (attempt ? 4 : 1) * hint[2], high = 2 * center - low;
        if (powers) low = NAME(key_at)(low), high = NAME(key_at)(high);
        found = NAME(between)(keys, mass, n, target, n / 64 + 8, &low, &high, room, room_mass, &inside, &cut);
        width = (powers ? NAME(scale_of)(high) - NAME(scale_of)(low) : high - low) / 2;
    }
    if (!found && n >= 2048) { /* search where a sample predicts it, within three standard deviations */
        int64_t size = 512, step = n / size;
        double share = target / total, slip = 3 * sqrt(share * (1 - share) / (double)size);
        for (int64_t i = 0; i < size; i++) room[i] = keys[i * step];
        double low = fmax(share - slip, 0) * (double)size + 1, high = fmin(share + slip, 1) * (double)size;
        double from = low > 1 ? (double)NAME(search)(room, NULL, size, 0, fmin(low, (double)size)).edge : -LARGE;
        double to = high < (double)size ? (double)NAME(search)(room, NULL, size, 0, fmax(high, 1)).edge : LARGE;
        found = NAME(between)(keys, mass, n, target, n / 64 + 8, &from, &to, room, room_mass, &inside, &cut);
    }
    if (!found) {
        memcpy(room, keys, (size_t)n * sizeof(REAL));
        if (mass) memcpy(room_mass, mass, (size_t)n * sizeof(double));
        cut = NAME(search)(room, mass ? room_mass : NULL, n, 0, target);
        inside = n;
    }
    NAME(learn)(hint, powers ? NAME(scale_of)((double)cut.edge) : (double)cut.edge, width, inside, n);
    return cut;
}

/* Compute the keys that rank the examples, smallest first, and overwrite the negated margins with the negated
 * slopes. */
INLINE void NAME(keys_of)(REAL *v, REAL *keys, int64_t n, int loss, int kind) {
    if (kind == CLOSE && loss == LOGISTIC) {
        for (int64_t i = 0; i < n; i++) {
            /* beyond STEEP the exponential continues as a straight line: outliers keep their order */
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
