/* One stage of a path: looks at the rows at a cut, Newton's steps, and cuts that hold a mass; included by path.c.
 *
 * Sums are made of eight partial sums in a fixed order and nothing is fused, whatever vectors the processor has: the same
 * numbers come out everywhere.
 */
enum { LOGISTIC = 0, HINGE = 1 };
enum { CLOSE = 0, ABOVE = 1, ALL = 2 };
#define LANES 8       /* rows come in multiples of it; the last ones may have no mass */
#define BLOCK 256     /* rows of a weighted block: they stay in cache */
#define ARMIJO 1e-4
#define SHORTEST 40   /* halvings of a step */
#define FIRST_DAMPING 0.1
#define DAMPINGS 60   /* tries to make a matrix positive definite */
#define STALLED 1e-4  /* of the tolerance: what falls less is rounding */
#define FLAT 1e-11    /* of a direction's size: no curvature */
#define MOVES 60      /* of a cut, until it counts k */
#define NARROWEST 1e-13 /* as a share of the cuts: between such two what is counted jumps */
#define LOWEST 1e-7   /* cuts end at this share of T: all that is left ties */

typedef struct {
    int64_t rows, size;      /* rows are a multiple of LANES */
    const double *across;    /* (size, rows): minus signed rows, so that products with c are minus margins */
    int loss;
    double threshold, kink;  /* T, and the width over which a kink is rounded */
    const double *mass;      /* (rows,) */
    const double *penalty;   /* (size,) */
    int kind;                /* which losses a cut leaves: CLOSE to T, ABOVE minus the cut, or ALL */
    double tol, ramp;        /* decrement as a share of the value; width of a ramp as a share of the cut, or of T */
    int64_t steps, stage;    /* Newton steps that are left, and those of one stage */
    int64_t looks;           /* at the rows, so far */
    double *v, *dv, *first, *second, *size_of, *pairs;       /* (rows,), the last (rows, 2) */
    double *packed;                                          /* (size + 3, BLOCK) */
    double *gradient, *matrix, *factor, *diagonal, *step;    /* (size,) and (size, size) */
    double *drift;                                           /* (size,): how a minimum moves with its cut */
    int factored;            /* whether there is a factor of the last stage */
} Task;

typedef struct {
    double value, inside, errors;
} Sums;

typedef struct {
    int kind;
    double low, high, width, spread;
} Window;

INLINE double total(const double *lane) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* log(1 + t) for t in [0, 1] as 2 atanh(t / (2 + t)): written out so that it vectorises. */
INLINE double log_one_and(double t) {
    double z = t / (2.0 + t), s = z * z, p = 1.0 / 35;
    p = p * s + 1.0 / 33;
    p = p * s + 1.0 / 31;
    p = p * s + 1.0 / 29;
    p = p * s + 1.0 / 27;
    p = p * s + 1.0 / 25;
    p = p * s + 1.0 / 23;
    p = p * s + 1.0 / 21;
    p = p * s + 1.0 / 19;
    p = p * s + 1.0 / 17;
    p = p * s + 1.0 / 15;
    p = p * s + 1.0 / 13;
    p = p * s + 1.0 / 11;
    p = p * s + 1.0 / 9;
    p = p * s + 1.0 / 7;
    p = p * s + 1.0 / 5;
    p = p * s + 1.0 / 3;
    return 2.0 * z * (1.0 + s * p);
}

/* Loss, slope and bend of a minus margin. */
INLINE void loss_at(int loss, double kink, double v, double *l, double *p, double *b) {
    if (loss == LOGISTIC) {
        double t = exp_f64(v < 0 ? v : -v), q = 1.0 / (1.0 + t);
        *l = (v > 0 ? v : 0) + log_one_and(t);
        *p = v > 0 ? q : t * q;
        *b = t * q * q;
    } else {
        double rest = 1.0 + v + 0.5 * kink, part = rest < 0 ? 0 : rest; /* a parabola around the kink */
        part = part > kink ? kink : part;
        *p = part / kink;
        *l = (rest - 0.5 * part) * *p;
        *b = (rest > 0 ? 1.0 / kink : 0.0) * (rest < kink ? 1.0 : 0.0);
    }
}

INLINE double dot(const double *a, const double *b, int64_t rows) {
    double lane[LANES] = {0};
    for (int64_t i = 0; i < rows; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += a[i + j] * b[i + j];
    return total(lane);
}

/* What is charged for some rows at their minus margins, their shares, and their first and second derivatives. The charge is
 * the integral of the share: a ramp up at the low edge less one at the high edge. */
INLINE void charge_rows(
    int loss, double kink, Window window, int64_t count, const double *restrict x, const double *restrict mass,
    double *restrict charge, double *restrict share, double *restrict first, double *restrict second,
    double *restrict size_of) {
    const double half = window.width / 2, steep = 1 / window.width;
    for (int64_t i = 0; i < count; i++) {
        double l, p, b, m = mass[i], s = 1.0, up = 0.0, down = 0.0;
        loss_at(loss, kink, x[i], &l, &p, &b);
        if (window.kind != ALL) {
            double u = l - window.low + half, part = u < 0 ? 0 : u;
            part = part > window.width ? window.width : part;
            up = (u > 0 ? steep : 0.0) * (u < window.width ? 1.0 : 0.0);
            s = part * steep;
            double high = l - window.high + half;
            l = (u - 0.5 * part) * s;
            if (window.kind == CLOSE) {
                part = high < 0 ? 0 : high;
                part = part > window.width ? window.width : part;
                down = (high > 0 ? steep : 0.0) * (high < window.width ? 1.0 : 0.0);
                s -= part * steep;
                l -= (high - 0.5 * part) * (part * steep);
            }
        }
        charge[i] = l;
        share[i] = s;
        first[i] = m * s * p;
        second[i] = m * (s * b + (up - down) * p * p);
        size_of[i] = m * (s * (b + p) + (up + down) * p * p); /* a kinked loss has slopes alone */
    }
}

/* Sums at the minus margins v + t * dv, and the derivatives of every row. */
INLINE Sums look_as(int loss, Window window, Task *task, double t) {
    double x[BLOCK], charge[BLOCK], share[BLOCK], wrong[BLOCK];
    Sums sums = {0, 0, 0};
    task->looks++;
    for (int64_t begin = 0; begin < task->rows; begin += BLOCK) {
        const int64_t count = task->rows - begin < BLOCK ? task->rows - begin : BLOCK;
        const double *mass = task->mass + begin, *v = task->v + begin, *dv = task->dv + begin;
        for (int64_t i = 0; i < count; i++) x[i] = v[i] + t * dv[i];
        for (int64_t i = 0; i < count; i++) wrong[i] = x[i] >= 0 ? 1.0 : 0.0;
        charge_rows(
            loss, task->kink, window, count, x, mass, charge, share, task->first + begin, task->second + begin,
            task->size_of + begin);
        sums.value += dot(mass, charge, count);
        sums.inside += dot(mass, share, count);
        sums.errors += dot(mass, wrong, count);
    }
    return sums;
}

/* The window of a cut: around T, or above minus the cut, so that it holds more where the cut is larger. */
INLINE Window window_at(const Task *task, double cut) {
    int kind = isfinite(cut) ? task->kind : ALL;
    double width = kind == ALL ? 1 : task->ramp * (kind == CLOSE ? cut : task->threshold);
    Window window = {kind, kind == CLOSE ? task->threshold - cut : -cut, task->threshold + cut, width, 0};
    window.spread = kind == CLOSE ? task->ramp : 0; /* its ramp widens with the cut */
    return window;
}

#define LOOK(KIND) \
    window.kind = KIND; \
    return task->loss == LOGISTIC ? look_as(LOGISTIC, window, task, t) : look_as(HINGE, window, task, t)

CLONES static Sums look(Task *task, double cut, double t) {
    Window window = window_at(task, cut); /* kinds are constants below: each has a loop of its own */
    if (window.kind == CLOSE) { LOOK(CLOSE); }
    if (window.kind == ABOVE) { LOOK(ABOVE); }
    LOOK(ALL);
}

CLONES static void margins(const Task *task, const double *c, double *out) {
    memset(out, 0, sizeof(double) * (size_t)task->rows);
    for (int64_t k = 0; k < task->size; k++) {
        const double *column = task->across + k * task->rows;
        double factor = c[k];
        for (int64_t i = 0; i < task->rows; i++) out[i] += factor * column[i];
    }
}

/* Products of two weighted columns with four others at once, added to two rows of a matrix. */
INLINE void dots(const double *a, int64_t astride, const double *b, int64_t stride, int64_t rows, double *out, int64_t next) {
    double lane[2][4][LANES] = {{{0}}};
    for (int64_t i = 0; i < rows; i += LANES)
        for (int q = 0; q < 4; q++)
            for (int j = 0; j < LANES; j++) {
                double x = b[q * stride + i + j];
                lane[0][q][j] += a[i + j] * x;
                lane[1][q][j] += a[astride + i + j] * x;
            }
    for (int q = 0; q < 4; q++) out[q] += total(lane[0][q]), out[next + q] += total(lane[1][q]);
}

/* Rows of a block that pull or bend, packed: columns (size, BLOCK), their derivatives behind. Returns how many, filled up. */
static int64_t pack(const Task *task, int64_t begin, int64_t count) {
    int64_t chosen[BLOCK], few = 0;
    for (int64_t i = 0; i < count; i++) {
        chosen[few] = i;
        few += task->size_of[begin + i] > 0;
    }
    int64_t filled = (few + LANES - 1) / LANES * LANES;
    for (int64_t k = 0; k < task->size; k++) {
        const double *column = task->across + k * task->rows + begin;
        double *to = task->packed + k * BLOCK;
        for (int64_t i = 0; i < few; i++) to[i] = column[chosen[i]];
        for (int64_t i = few; i < filled; i++) to[i] = 0;
    }
    const double *from[3] = {task->first + begin, task->second + begin, task->size_of + begin};
    for (int part = 0; part < 3; part++) {
        double *to = task->packed + (task->size + part) * BLOCK;
        for (int64_t i = 0; i < few; i++) to[i] = from[part][chosen[i]];
        for (int64_t i = few; i < filled; i++) to[i] = 0;
    }
    return filled;
}

/* Gradient, Hessian (lower triangle) and the sizes by which it is damped, of the rows alone. */
CLONES static void assemble(Task *task) {
    const int64_t n = task->rows, d = task->size;
    double room[2 * BLOCK], squared[BLOCK];
    memset(task->gradient, 0, sizeof(double) * (size_t)d);
    memset(task->diagonal, 0, sizeof(double) * (size_t)d);
    memset(task->matrix, 0, sizeof(double) * (size_t)(d * d));
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t count = pack(task, begin, n - begin < BLOCK ? n - begin : BLOCK);
        const double *first = task->packed + d * BLOCK, *second = first + BLOCK, *size_of = second + BLOCK;
        for (int64_t k = 0; k < d; k += 2) {
            int64_t both = k + 1 < d ? 2 : 1;
            for (int64_t q = 0; q < both; q++) {
                const double *column = task->packed + (k + q) * BLOCK;
                task->gradient[k + q] += dot(first, column, count);
                for (int64_t i = 0; i < count; i++) {
                    room[q * BLOCK + i] = second[i] * column[i];
                    squared[i] = column[i] * column[i];
                }
                task->diagonal[k + q] += dot(size_of, squared, count);
            }
            int64_t other = 0;
            for (; both == 2 && other + 3 <= k; other += 4)
                dots(room, BLOCK, task->packed + other * BLOCK, BLOCK, count, task->matrix + k * d + other, d);
            for (int64_t q = 0; q < both; q++)
                for (int64_t left = other; left <= k + q; left++)
                    task->matrix[(k + q) * d + left] += dot(room + q * BLOCK, task->packed + left * BLOCK, count);
        }
    }
}

/* Cholesky's factor of matrix + damping * diagonal into `factor`; 0 if it is not positive definite. A coordinate of size 0
 * has no pull either: any factor leaves it where it is. */
static int factorise(Task *task, double damping) {
    const int64_t d = task->size;
    double *f = task->factor;
    for (int64_t i = 0; i < d; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double sum = task->matrix[i * d + j];
            for (int64_t k = 0; k < j; k++) sum -= f[i * d + k] * f[j * d + k];
            if (i == j) {
                sum += damping * task->diagonal[i];
                if (task->diagonal[i] == 0) sum = 1;
                if (!(sum > FLAT * task->diagonal[i])) return 0;
                f[i * d + i] = sqrt(sum);
            } else {
                f[i * d + j] = sum / f[j * d + j];
            }
        }
    }
    return 1;
}

static void newton_step(Task *task) {
    const int64_t d = task->size;
    double *f = task->factor, *x = task->step;
    for (int64_t i = 0; i < d; i++) {
        double sum = -task->gradient[i];
        for (int64_t k = 0; k < i; k++) sum -= f[i * d + k] * x[k];
        x[i] = sum / f[i * d + i];
    }
    for (int64_t i = d - 1; i >= 0; i--) {
        double sum = x[i];
        for (int64_t k = i + 1; k < d; k++) sum -= f[k * d + i] * x[k];
        x[i] = sum / f[i * d + i];
    }
}

static double penalised(const Task *task, const double *c, double t) {
    double sum = 0;
    for (int64_t k = 0; k < task->size; k++) {
        double there = c[k] + t * task->step[k];
        sum += task->penalty[k] * there * there;
    }
    return 0.5 * sum;
}

/* Damped Newton steps from c at one cut, always downhill; the sums where they end, and the value with its penalty. */
static Sums descend(Task *task, double *c, double cut, double *value) {
    const int64_t d = task->size;
    double damping = 0;
    int64_t left = task->stage;
    task->factored = 0;
    margins(task, c, task->v);
    memset(task->dv, 0, sizeof(double) * (size_t)task->rows);
    memset(task->step, 0, sizeof(double) * (size_t)d);
    Sums sums = look(task, cut, 0);
    *value = sums.value + penalised(task, c, 0);
    while (sums.inside > 0 && left-- > 0 && task->steps-- > 0) { /* where nothing is inside, the cut is too low */
        assemble(task);
        for (int64_t k = 0; k < d; k++) {
            task->gradient[k] += task->penalty[k] * c[k];
            task->matrix[k * d + k] += task->penalty[k];
            task->diagonal[k] += task->penalty[k];
        }
        int tries = 0;
        task->factored = 0;
        for (; tries < DAMPINGS && !factorise(task, damping); tries++) damping = damping > 0 ? 2 * damping : FIRST_DAMPING;
        if (tries == DAMPINGS) break;
        task->factored = 1;
        newton_step(task);
        double fall = 0;
        for (int64_t k = 0; k < d; k++) fall += task->gradient[k] * task->step[k];
        if (!(-fall > task->tol * *value)) break;
        margins(task, task->step, task->dv);
        double t = 1, there = 0;
        int halvings = 0;
        Sums trial = sums;
        for (; halvings < SHORTEST; halvings++, t *= 0.5) {
            trial = look(task, cut, t); /* mostly the first is good: its derivatives serve the next step */
            there = trial.value + penalised(task, c, t);
            if (there <= *value + ARMIJO * t * fall) break;
        }
        if (halvings == SHORTEST) break;
        for (int64_t k = 0; k < d; k++) c[k] += t * task->step[k];
        for (int64_t i = 0; i < task->rows; i++) task->v[i] += t * task->dv[i];
        int stalled = !(*value - there > STALLED * task->tol * *value);
        sums = trial, *value = there;
        if (stalled) break;
        damping = damping < 0.8 * FIRST_DAMPING ? 0 : halvings ? damping : damping / 4;
    }
    return sums;
}

static int ascending(const void *a, const void *b) {
    double x = ((const double *)a)[0], y = ((const double *)b)[0];
    return (x > y) - (x < y);
}

/* The distance from T within which a share of the mass lies, at c. */
static double distance(Task *task, const double *c, double share) {
    double *pairs = task->pairs, all = 0, reached = 0, found = 0;
    margins(task, c, task->v);
    for (int64_t i = 0; i < task->rows; i++) {
        double l, p, b;
        loss_at(task->loss, task->kink, task->v[i], &l, &p, &b);
        pairs[2 * i] = fabs(l - task->threshold), pairs[2 * i + 1] = task->mass[i];
        all += task->mass[i];
    }
    qsort(pairs, (size_t)task->rows, 2 * sizeof(double), ascending);
    for (int64_t i = 0; i < task->rows; i++) {
        found = pairs[2 * i];
        if ((reached += pairs[2 * i + 1]) >= share * all) break;
    }
    return found;
}

typedef struct {
    double cut, inside, value, errors;
    double *c;
} Spot;

static void settle(Task *task, Spot *spot, const double *from, double cut) {
    if (from != spot->c) memcpy(spot->c, from, sizeof(double) * (size_t)task->size);
    spot->cut = cut;
    Sums sums = descend(task, spot->c, cut, &spot->value);
    spot->inside = sums.inside, spot->errors = sums.errors;
}

static void copy(const Task *task, Spot *to, const Spot *from) {
    double *c = to->c;
    memcpy(c, from->c, sizeof(double) * (size_t)task->size);
    *to = *from;
    to->c = c;
}

/* How what a cut counts changes with it at the minimum where a stage has just ended; the minimum's own change is `drift`.
 * The factor is that of the stage's last step. */
CLONES static double slope_at(Task *task, double cut) {
    const Window window = window_at(task, cut);
    const double half = window.width / 2, steep = 1 / window.width;
    const int64_t d = task->size, n = task->rows;
    if (!task->factored) return 0;
    double grown = 0, *by_cut = task->first, *by_loss = task->second;
    for (int64_t i = 0; i < n; i++) {
        double l, p, b, up = 0, down = 0, share = 0.5;
        loss_at(task->loss, task->kink, task->v[i], &l, &p, &b);
        if (fabs(l - window.low) < half) up = steep, share = (l - window.low + half) * steep;
        if (window.kind == CLOSE && fabs(l - window.high) < half) down = steep, share = (window.high + half - l) * steep;
        double moved = task->mass[i] * (up + down) * (1 + window.spread * (0.5 - share));
        grown += moved;
        by_cut[i] = moved * p;
        by_loss[i] = task->mass[i] * (up - down) * p;
    }
    for (int64_t k = 0; k < d; k++) task->gradient[k] = dot(by_cut, task->across + k * n, n);
    newton_step(task);
    for (int64_t k = 0; k < d; k++) {
        task->drift[k] = task->step[k];
        grown += task->step[k] * dot(by_loss, task->across + k * n, n);
    }
    return grown;
}

/* A cut by one move further in or out. */
static double moved_cut(const Task *task, double cut, double factor, int out, int moves) {
    if (task->kind == CLOSE) return out ? cut / factor : cut * factor;
    return cut + (out ? 1 : -1) * task->ramp * task->threshold * ldexp(1.0, moves < 40 ? moves : 40);
}

/* Between two cuts: by the share of the way from the high to the low one. */
static double between(const Task *task, const Spot *high, const Spot *low, double share) {
    if (task->kind == CLOSE) return high->cut * pow(low->cut / high->cut, share);
    return high->cut + share * (low->cut - high->cut);
}

/* A spot whose cut counts k, to a tolerance: Newton's steps in the cut, the minimum following, held between the nearest cuts
 * that count more and less once both are known. Where none counts k, the nearest; `high` and `low` are overwritten. */
static int place(Task *task, Spot *spot, Spot *high, Spot *low, double k, double slack, double factor) {
    int above = 0, below = 0, moves = 0, tries = 0;
    double before = INFINITY;
    settle(task, spot, spot->c, spot->cut);
    for (; tries < MOVES && task->steps > 0 && fabs(spot->inside - k) > slack; tries++) {
        int inside = spot->inside > k;
        copy(task, inside ? high : low, spot);
        above |= inside, below |= !inside;
        double slope = slope_at(task, spot->cut), next = slope > 0 ? spot->cut - (spot->inside - k) / slope : spot->cut;
        double least = below ? low->cut : moved_cut(task, spot->cut, factor, 0, moves);
        double most = above ? high->cut : moved_cut(task, spot->cut, factor, 1, moves);
        int newton = slope > 0 && next > least && next < most;
        if (above && below) {
            if (!(most - least > NARROWEST * (fabs(most) + fabs(least)))) break; /* what is counted jumps */
            if (tries % 3 == 2) newton &= most - least < 0.5 * before, before = most - least;
            if (!newton) next = between(task, high, low, 0.5);
        } else {
            if (!newton) next = inside ? least : most, moves++;
            newton = slope > 0;
        }
        if (task->kind == CLOSE && !(next > LOWEST * task->threshold)) break;
        double change = next - spot->cut;
        if (newton)
            for (int64_t j = 0; j < task->size; j++) spot->c[j] += change * task->drift[j];
        else if (above && !inside)
            memcpy(spot->c, high->c, sizeof(double) * (size_t)task->size);
        settle(task, spot, spot->c, next);
    }
    if (above && fabs(high->inside - k) < fabs(spot->inside - k)) copy(task, spot, high);
    if (below && fabs(low->inside - k) < fabs(spot->inside - k)) copy(task, spot, low);
    return tries;
}

/* Room for a task and its spots, all in one piece; NULL where memory was lacking. */
static double *prepare(Task *task, Spot *spots, int count, double **penalty) {
    size_t d = (size_t)task->size, n = (size_t)task->rows;
    double *room = malloc(sizeof(double) * (7 * n + 2 * d * d + (5 + (size_t)count) * d + (d + 3) * BLOCK)), *next = room;
    if (!room) return NULL;
#define TAKE(count) (next += (count), next - (count))
    task->v = TAKE(n), task->dv = TAKE(n), task->first = TAKE(n), task->second = TAKE(n), task->size_of = TAKE(n);
    task->pairs = TAKE(2 * n), task->matrix = TAKE(d * d), task->factor = TAKE(d * d);
    task->packed = TAKE((d + 3) * BLOCK);
    task->gradient = TAKE(d), task->diagonal = TAKE(d), task->step = TAKE(d), task->drift = TAKE(d);
    task->penalty = *penalty = TAKE(d);
    for (int spot = 0; spot < count; spot++) spots[spot].c = TAKE(d);
    return room;
}

static void write_spot(const Task *task, const Spot *spot, double *out) {
    memcpy(out, spot->c, sizeof(double) * (size_t)task->size);
    out += task->size;
    out[0] = spot->cut, out[1] = spot->inside, out[2] = spot->value, out[3] = spot->errors;
}
