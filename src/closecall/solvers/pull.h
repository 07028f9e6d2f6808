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

/* The scale on which the edge of a close logistic problem is followed: the margin on the right side of the boundary whose
 * key it is, and from FAR on, where there is none, the margin on the wrong side. Keys themselves crowd below 2. */
INLINE double NAME(scale_of)(double key) {
    return key < 2 ? fmin(-log(2 / fmax(key, 1) - 1), FAR) : FAR + log((2 * key - 1) / 3);
}

INLINE double NAME(key_at)(double x) {
    return x < FAR ? 2 / (1 + exp(-fmax(x, 0))) : 0.5 + 1.5 * exp(x - FAR);
}

/* The minus margins whose keys can be at most `high`, on the scale above for a close logistic problem. A little more than those:
 * keys and bounds are rounded, and no key of what is left out may come out as `high` or less. */
INLINE void NAME(reach)(double high, int loss, int kind, REAL *from, REAL *to) {
    if (kind != CLOSE || loss != LOGISTIC) high = (double)(REAL)high; /* as it is compared with keys */
    double low = kind == KEYS || high >= 1 ? -INFINITY : -high, top = high;
    if (kind == CLOSE && loss == LOGISTIC) {
        double most = NAME(key_at)(high) * (1 + 64 * (double)EPSILON);
        low = most < 2 ? log(2 / most - 1) : -INFINITY, top = log(2 * most - 1);
        low -= 4 * (double)EPSILON * fabs(low), top += 4 * (double)EPSILON * top;
        if (top >= STEEP) top = INFINITY;
    }
    *from = (REAL)low, *to = (REAL)top;
}

/* Bring two bounds of the k-th key nearer to each other while many are between them: to count is cheaper than to search.
 * `values` are minus margins, or themselves KEYS. Is the k-th key between the bounds? */
INLINE int NAME(narrow)(const REAL *values, int64_t n, int loss, int kind, double k, int64_t enough, double *low,
                        double *high) {
    double a = *low, b = *high;
    int64_t under = 0, upto = n;
    for (int round = 0; round < 7 && upto - under > enough; round++) {
        double wide = *high - *low, place = (k - (double)under) / (double)(upto - under);
        if (round % 2) { /* where the k-th key would be if those between were spread evenly, and a little around it */
            a = fmax(*low + wide * (place - 0.0625), *low), b = fmin(*low + wide * (place + 0.0625), *high);
        } else if (round) { /* thirds, since they need not be */
            a = *low + wide / 3, b = *high - wide / 3;
        }
        REAL from_a, to_a, from_b, to_b;
        NAME(reach)(a, loss, kind, &from_a, &to_a), NAME(reach)(b, loss, kind, &from_b, &to_b);
        int64_t less = 0, most = 0;
        for (int64_t begin = 0; begin < n; begin += COUNTED) {
            int size = n - begin < COUNTED ? (int)(n - begin) : COUNTED;
            const REAL *v = values + begin;
            int32_t first = 0, second = 0;
            for (int i = 0; i < size; i++) {
                first += (v[i] >= from_a) & (v[i] <= to_a);
                second += (v[i] >= from_b) & (v[i] <= to_b);
            }
            less += first, most += second;
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

/* The keys below `low` are counted, those up to `high` searched. Is the key at which the mass reaches k there? */
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

/* What the next step is told: where the edge was, its drift, and how far around the sum of both to look. */
INLINE void NAME(learn)(double *hint, double edge, double width, int64_t inside, int64_t n) {
    if (hint[2] < 0) {
        hint[1] = 0, hint[2] = 0.02 * fabs(edge);
    } else { /* aim at few keys inside, but look further than the last guess was off */
        double scale = (double)(n / 64 + 8) / (double)(inside + 1), missed = fabs(edge - hint[0] - hint[1]);
        hint[1] = edge - hint[0];
        hint[2] = fmax(2 * missed, width * (scale > 2 ? 2 : scale < 0.5 ? 0.5 : scale));
    }
    hint[0] = edge;
}

/* Where the mass of the smallest keys reaches k. hint: the edge of the last time, its drift, and how far around the sum
 * of both to look (negative: nothing is known); on scale_of the keys if `powers`. */
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
    if (!found && n >= 2048) { /* a sample says where to look, three standard deviations either way */
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
/* Which of n values lie between two others: their places. */
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
    REAL *keys, *slopes, *room;    /* of n each */
    double *near_mass, *room_mass; /* of n each if any masses are given */
    int32_t *places;               /* of n */
} NAME(Scratch);

/* The pulls of a row's chosen examples by a look at those alone that can be among them: their number; -1 if its hint
 * does not hold. Places and pulls are in the scratch. */
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

/* The same for the k-th largest loss alone. */
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

/* The hinge is flat from margin 1 on: all those examples tie at key 1, and none of them pulls. If the k-th key is theirs,
 * nothing has to be searched. */
INLINE int NAME(flat)(const REAL *v, REAL *to, int64_t n, int kind, double k, double *hint) {
    REAL most = kind == CLOSE ? 1 : INFINITY;
    int64_t below = 0, edge = 0;
    for (int64_t begin = 0; begin < n; begin += COUNTED) {
        int size = n - begin < COUNTED ? (int)(n - begin) : COUNTED;
        int32_t first = 0, second = 0;
        for (int i = 0; i < size; i++) {
            REAL x = v[begin + i];
            first += (x > -1) & (x < most), second += (x <= -1) | (x == most);
        }
        below += first, edge += second;
    }
    if ((double)below >= k || (double)(below + edge) < k) return 0;
    NAME(learn)(hint, 1, hint[2], n / 64 + 7, n);
    REAL share = (REAL)((k - (double)below) / (double)edge);
    for (int64_t i = 0; i < n; i++) to[i] = v[i] > -1 ? (v[i] < most ? 1 : v[i] == most ? share : 0) : 0;
    return 1;
}

/* The pulls of all examples, into `to`, which may be v. */
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

/* The sum of pulls * rows of the design, four at a time. */
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

/* rows x n minus margins become gradients. Row i trains on fold folds[i]: totals are the folds' masses; factors[fold] is
 * NULL (all ones) or n masses as REAL, masses[fold] NULL (zeros and ones) or the same as doubles. scratch: 4 n REAL,
 * room_mass: 2 n doubles if any masses are given. hints: rows x 3. Where few examples pull, and there is a design
 * (n x rank), the row's gradient is summed here. The other rows' pulls are left to a product: they move up to the first
 * places of values, and `left` says which rows they are of; how many is returned. */
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
            int64_t short_of = 0; /* of margin 1: if they are fewer than k, the k-th is where the hinge is flat */
            for (int64_t i = 0; i < n; i++) short_of += v[i] > -1;
            chosen = (double)short_of < k[row] ? 0 : -1;
        }
        if (kind == TOP && chosen < 0) {
            chosen = NAME(kth)(v, n, loss, k[row], factor, mass, total, s, hint);
        } else if (kind == CLOSE && hint[2] >= 0 && 3 * k[row] <= total && n >= 128) {
            chosen = NAME(near)(v, n, loss, kind, k[row], factor, mass, s, hint);
            hint[2] = chosen < 0 ? -1 : hint[2]; /* it did not hold */
        }
        if (chosen >= 0 && design && chosen * FEW <= n) {
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
#endif
