/* One stage of a path: Newton's steps at a cut, and cuts that hold a mass; included by path.c. */
#include "looks.h"

#define ARMIJO 1e-4
#define SHORTEST 40   /* shortenings of a step */
#define FIRST_DAMPING 0.1
#define DAMPINGS 60   /* tries to make a matrix positive definite */
#define STALLED 1e-4  /* of the tolerance: what falls less is rounding */
#define FLAT 1e-11    /* of a direction's size: no curvature */
#define EXACT 1e-5    /* a tolerance: looser stages keep factors, and shorten steps by damping too */
#define WIDE 8        /* coordinates from which a factor costs more than a few looks, and is kept ... */
#define KEPT 0.5      /* ... while a step leaves at most this share of what the last one left */
#define CURVED 0.01   /* of the curvature that a factor predicts: steps with less do not correct it */
#define MOVES 60      /* of a cut, until it counts k */
#define NARROWEST 1e-13 /* as a share of the cuts: between such two what is counted jumps */
#define LOWEST 1e-7   /* cuts end at this share of T: all that is left ties */

/* Cholesky's factor of matrix + damping * diagonal, transposed, into `factor`; 0 if it is not positive definite. A
 * coordinate of size 0 has no pull either: any factor leaves it where it is. */
CLONES static int factorise(Task *task, double damping) {
    const int64_t d = task->size, wide = task->padded;
    for (int64_t j = 0; j < d; j++) {
        double *restrict f = task->factor + j * wide;
        for (int64_t i = j; i < d; i++) f[i] = task->matrix[i * wide + j];
        for (int64_t k = 0; k < j; k++) {
            const double *g = task->factor + k * wide, by = g[j];
            for (int64_t i = j; i < d; i++) f[i] -= g[i] * by;
        }
        double pivot = task->diagonal[j] == 0 ? 1 : f[j] + damping * task->diagonal[j];
        if (!(pivot > FLAT * task->diagonal[j])) return 0;
        f[j] = sqrt(pivot);
        for (int64_t i = j + 1; i < d; i++) f[i] /= f[j];
    }
    return 1;
}

static double product(const double *a, const double *b, int64_t size) {
    double sum = 0;
    for (int64_t k = 0; k < size; k++) sum += a[k] * b[k];
    return sum;
}

/* The step against the gradient by the factor, corrected by the steps since it was made (two loops, as in L-BFGS). */
static void newton_step(Task *task) {
    const int64_t d = task->size, wide = task->padded;
    double *x = task->step, by[MEMORY];
    for (int64_t i = 0; i < d; i++) x[i] = -task->gradient[i];
    for (int j = task->known - 1; j >= 0; j--) {
        by[j] = task->inverse[j] * product(task->moved + j * d, x, d);
        for (int64_t i = 0; i < d; i++) x[i] -= by[j] * task->turned[j * d + i];
    }
    for (int64_t k = 0; k < d; k++) {
        const double *f = task->factor + k * wide;
        x[k] /= f[k];
        for (int64_t i = k + 1; i < d; i++) x[i] -= f[i] * x[k];
    }
    for (int64_t i = d - 1; i >= 0; i--) {
        const double *f = task->factor + i * wide;
        x[i] = (x[i] - product(f + i + 1, x + i + 1, d - i - 1)) / f[i];
    }
    for (int j = 0; j < task->known; j++) {
        double back = by[j] - task->inverse[j] * product(task->turned + j * d, x, d);
        for (int64_t i = 0; i < d; i++) x[i] += back * task->moved[j * d + i];
    }
}

/* The Hessian where the last look was, damped until it is positive definite, and its factor; 0 if there is none. */
static int refresh(Task *task, double *damping) {
    assemble(task);
    for (int64_t k = 0; k < task->size; k++) {
        task->matrix[k * task->padded + k] += task->penalty[k];
        task->diagonal[k] += task->penalty[k];
    }
    task->known = 0, task->factored = 0;
    for (int tries = 0; tries < DAMPINGS && !task->factored; tries++) {
        task->factored = factorise(task, *damping);
        if (!task->factored) *damping = *damping > 0 ? 2 * *damping : FIRST_DAMPING;
    }
    return task->factored;
}

/* Remember how a step of length t along `step` changed the gradient; 0 where the factor is of no more use. */
static int remember(Task *task, double t, double fall) {
    const int64_t d = task->size;
    if (task->known == MEMORY) return 0;
    double *moved = task->moved + task->known * d, *turned = task->turned + task->known * d;
    for (int64_t k = 0; k < d; k++) moved[k] = t * task->step[k], turned[k] = task->gradient[k] - task->before[k];
    double curvature = product(moved, turned, d);
    if (!(curvature > CURVED * t * t * -fall)) return 0;
    task->inverse[task->known++] = 1 / curvature;
    return 1;
}

/* The gradient where the last look was. */
static void turn(Task *task, const double *c) {
    pull(task, task->first, task->gradient);
    for (int64_t k = 0; k < task->size; k++) task->gradient[k] += task->penalty[k] * c[k];
}

static double penalised(const Task *task, const double *c, double t) {
    double sum = 0;
    for (int64_t k = 0; k < task->size; k++) {
        double there = c[k] + t * task->step[k];
        sum += task->penalty[k] * there * there;
    }
    return 0.5 * sum;
}

/* Damped Newton steps from c at one cut, always downhill; the sums where they end, and the value with its penalty. A factor
 * is kept while what is left falls fast enough, those of earlier stages included if `kept`. */
static Sums descend(Task *task, double *c, double cut, double *value, int kept) {
    const int64_t d = task->size;
    const int loose = task->tol >= EXACT, keeps = loose && d >= WIDE;
    const double shorter = loose ? 0.25 : 0.5; /* of a step that does not descend */
    double damping = 0, last = INFINITY;
    int64_t left = task->stage;
    if (!kept || !keeps) task->factored = 0;
    margins(task, c, task->v);
    memset(task->dv, 0, sizeof(double) * (size_t)task->rows);
    memset(task->step, 0, sizeof(double) * (size_t)d);
    Sums sums = look(task, cut, 0);
    *value = sums.value + penalised(task, c, 0);
    turn(task, c);
    while (sums.inside > 0 && left-- > 0 && task->steps-- > 0) { /* where nothing is inside, the cut is too low */
        double fall = 0;
        int fresh = 0;
        if (task->factored && last > 0) {
            newton_step(task);
            fall = product(task->gradient, task->step, d);
        }
        if (!task->factored || last == 0 || (!(-fall <= KEPT * last) && -fall > task->tol * *value)) {
            if (!refresh(task, &damping)) break;
            newton_step(task);
            fall = product(task->gradient, task->step, d), fresh = 1;
        }
        if (!(-fall > task->tol * *value)) break;
        margins(task, task->step, task->dv);
        double t = 1, there = 0;
        int shortened = 0;
        Sums trial = sums;
        for (; shortened < SHORTEST; shortened++, t *= shorter) {
            trial = look(task, cut, t); /* mostly the first is good: its derivatives serve the next step */
            there = trial.value + penalised(task, c, t);
            if (there <= *value + ARMIJO * t * fall) break;
            if (!fresh) break;
        }
        if (shortened == SHORTEST) break;
        if (!(there <= *value + ARMIJO * t * fall)) { /* the factor is too old: look again where it was */
            look(task, cut, 0);
            task->factored = 0;
            continue;
        }
        for (int64_t k = 0; k < d; k++) c[k] += t * task->step[k], task->before[k] = task->gradient[k];
        for (int64_t i = 0; i < task->rows; i++) task->v[i] += t * task->dv[i];
        int stalled = !(*value - there > STALLED * task->tol * *value);
        sums = trial, *value = there;
        if (stalled) break;
        turn(task, c);
        last = -fall;
        if (shortened || !keeps || !remember(task, t, fall)) last = 0; /* its factor would not serve */
        if (shortened && loose) damping = damping > 0 ? 2 * damping : FIRST_DAMPING;
        else damping = damping < 0.8 * FIRST_DAMPING ? 0 : shortened ? damping : damping / 4;
    }
    return sums;
}

INLINE void swap(double *pairs, int64_t i, int64_t j) {
    double key = pairs[2 * i], mass = pairs[2 * i + 1];
    pairs[2 * i] = pairs[2 * j], pairs[2 * i + 1] = pairs[2 * j + 1];
    pairs[2 * j] = key, pairs[2 * j + 1] = mass;
}

/* The smallest key of (rows, 2) pairs of keys and masses up to which a mass lies: parts below, at and above a pivot. */
static double reach(double *pairs, int64_t rows, double wanted) {
    int64_t begin = 0, end = rows;
    double below = 0, pivot = 0;
    while (begin < end) {
        int64_t less = begin, i = begin, more = end;
        double under = 0, at = 0;
        pivot = pairs[2 * (begin + (end - begin) / 2)];
        while (i < more) {
            if (pairs[2 * i] < pivot) under += pairs[2 * i + 1], swap(pairs, less++, i++);
            else if (pairs[2 * i] > pivot) swap(pairs, i, --more);
            else at += pairs[2 * i + 1], i++;
        }
        if (below + under >= wanted && less > begin) end = less;
        else if (below + under + at >= wanted || more == end) break;
        else below += under + at, begin = more;
    }
    return pivot;
}

INLINE void losses_as(int loss, const Task *task, double *out) {
    for (int64_t i = 0; i < task->rows; i++) {
        double p, b;
        loss_at(loss, task->kink, task->v[i], out + i, &p, &b);
    }
}

CLONES static void plain_losses(const Task *task, double *out) {
    if (task->loss == LOGISTIC) losses_as(LOGISTIC, task, out);
    else losses_as(HINGE, task, out);
}

/* The distance from T within which a share of the mass lies, at c. */
static double distance(Task *task, const double *c, double share) {
    double *pairs = task->pairs, *losses = task->first, all = 0;
    margins(task, c, task->v);
    plain_losses(task, losses);
    for (int64_t i = 0; i < task->rows; i++) {
        pairs[2 * i] = fabs(losses[i] - task->threshold), pairs[2 * i + 1] = task->mass[i];
        all += task->mass[i];
    }
    return reach(pairs, task->rows, share * all);
}

typedef struct {
    double cut, inside, value, errors;
    double *c;
} Spot;

static void settle(Task *task, Spot *spot, const double *from, double cut, int kept) {
    if (from != spot->c) memcpy(spot->c, from, sizeof(double) * (size_t)task->size);
    spot->cut = cut;
    Sums sums = descend(task, spot->c, cut, &spot->value, kept);
    spot->inside = sums.inside, spot->errors = sums.errors;
}

static void copy(const Task *task, Spot *to, const Spot *from) {
    double *c = to->c;
    memcpy(c, from->c, sizeof(double) * (size_t)task->size);
    *to = *from;
    to->c = c;
}

/* For every row: how its share grows with the cut, times its mass, into `size_of`, times its slope into `first`; and how
 * its share grows with its minus margin, times its mass, into `second`. */
INLINE void edges_as(int loss, Window window, Task *task) {
    const double half = window.width / 2, steep = 1 / window.width, falls = window.kind == CLOSE ? steep : 0.0;
    const double *mass = task->mass, *v = task->v;
    double *restrict first = task->first, *restrict second = task->second, *restrict grows = task->size_of;
    for (int64_t i = 0; i < task->rows; i++) {
        double l, p, b;
        loss_at(loss, task->kink, v[i], &l, &p, &b);
        double low = l - window.low, high = l - window.high, up = fabs(low) < half ? steep : 0.0;
        double down = fabs(high) < half ? falls : 0.0, beyond = down > 0 ? high : up > 0 ? -low : 0.0;
        double moved = mass[i] * (up + down) * (1 + window.spread * steep * beyond);
        grows[i] = moved;
        first[i] = moved * p;
        second[i] = mass[i] * (up - down) * p;
    }
}

/* How what a cut counts changes with it at the minimum where a stage has just ended; the minimum's own change is `drift`.
 * The factor is that of the stage's last step. */
CLONES static double slope_at(Task *task, double cut) {
    const Window window = window_at(task, cut);
    const int64_t n = task->rows;
    if (!task->factored) return 0;
    if (task->loss == LOGISTIC) edges_as(LOGISTIC, window, task);
    else edges_as(HINGE, window, task);
    pull(task, task->first, task->gradient);
    newton_step(task);
    memcpy(task->drift, task->step, sizeof(double) * (size_t)task->size);
    margins(task, task->drift, task->dv);
    for (int64_t i = 0; i < n; i++) task->first[i] = 1;
    return dot(task->size_of, task->first, n) + dot(task->second, task->dv, n);
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
 * that count more and less once both are known. Where none counts k, the nearest; `high` and `low` are overwritten. `here`
 * says that the last stage ended at this spot: its factor serves. */
static void place(Task *task, Spot *spot, Spot *high, Spot *low, double k, double slack, double factor, int here) {
    int above = 0, below = 0, moves = 0;
    double before = INFINITY;
    if (here) margins(task, spot->c, task->v);
    else settle(task, spot, spot->c, spot->cut, 0);
    for (int tries = 0; tries < MOVES && task->steps > 0 && fabs(spot->inside - k) > slack; tries++) {
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
        settle(task, spot, spot->c, next, newton);
    }
    if (above && fabs(high->inside - k) < fabs(spot->inside - k)) copy(task, spot, high);
    if (below && fabs(low->inside - k) < fabs(spot->inside - k)) copy(task, spot, low);
}

/* The factor with its corrections as it was, or as it will be: a stage's end is where several cuts begin. */
static void keep_factor(Task *task, int back) {
    const size_t size = sizeof(double) * (size_t)(task->padded * task->padded + 2 * MEMORY * task->size);
    memcpy(back ? task->factor : task->saved, back ? task->saved : task->factor, size);
    memcpy(back ? task->inverse : task->saved_inverse, back ? task->saved_inverse : task->inverse, sizeof task->inverse);
    if (back) task->known = task->saved_known, task->factored = task->saved_factored;
    else task->saved_known = task->known, task->saved_factored = task->factored;
}

/* Room for a task and its spots, all in one piece; NULL where memory was lacking. */
static double *prepare(Task *task, Spot *spots, int count, double **penalty) {
    size_t d = (size_t)task->size, n = (size_t)task->rows;
    const size_t wide = (d + 3) / 4 * 4, vectors = 6 + 4 * MEMORY + (size_t)count;
    double *room = calloc(7 * n + 3 * wide * wide + vectors * d + (wide + 2) * BLOCK, sizeof(double)), *next = room;
    if (!room) return NULL;
#define TAKE(count) (next += (count), next - (count))
    task->padded = (int64_t)wide;
    task->v = TAKE(n), task->dv = TAKE(n), task->first = TAKE(n), task->second = TAKE(n), task->size_of = TAKE(n);
    task->pairs = TAKE(2 * n), task->matrix = TAKE(wide * wide), task->factor = TAKE(wide * wide);
    task->moved = TAKE(MEMORY * d), task->turned = TAKE(MEMORY * d); /* behind the factor */
    task->saved = TAKE(wide * wide + 2 * MEMORY * d);
    task->packed = TAKE((wide + 2) * BLOCK);
    task->gradient = TAKE(d), task->before = TAKE(d), task->diagonal = TAKE(d), task->step = TAKE(d), task->drift = TAKE(d);
    task->penalty = *penalty = TAKE(d);
    for (int spot = 0; spot < count; spot++) spots[spot].c = TAKE(d);
    return room;
}

static void write_spot(const Task *task, const Spot *spot, double *out) {
    memcpy(out, spot->c, sizeof(double) * (size_t)task->size);
    out += task->size;
    out[0] = spot->cut, out[1] = spot->inside, out[2] = spot->value, out[3] = spot->errors;
}
