/* One stage of a path: Newton steps at a fixed cut; included by path.c. */
#include "looks.h"

/* Write the Cholesky factor of matrix + damping * diagonal, transposed, into `factor`; return 0 if it is not positive
 * definite. A coordinate of size 0 has no gradient, so any factor leaves it unchanged. */
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
        if (!(pivot > 1e-11 * task->diagonal[j])) return 0; /* smaller pivots are rounding errors */
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

/* Compute the step against the gradient from the factor, corrected by the steps since it was computed (two loops, as in
 * L-BFGS). */
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

/* Factorise the Hessian of the last evaluation, damped until it is positive definite; return 0 on failure. */
static int refresh(Task *task, double *damping) {
    assemble(task);
    for (int64_t k = 0; k < task->size; k++) {
        task->matrix[k * task->padded + k] += task->penalty[k];
        task->diagonal[k] += task->penalty[k];
    }
    task->known = 0, task->factored = 0;
    for (int tries = 0; tries < 60 && !task->factored; tries++) {
        task->factored = factorise(task, *damping);
        if (!task->factored) *damping = *damping > 0 ? 2 * *damping : DAMPING;
    }
    return task->factored;
}

/* Record how a step of length t along `step` changed the gradient; return 0 if the factor can no longer be corrected,
 * because the memory is full or the step curved by less than a hundredth of the prediction. */
static int remember(Task *task, double t, double fall) {
    const int64_t d = task->size;
    if (task->known == MEMORY) return 0;
    double *moved = task->moved + task->known * d, *turned = task->turned + task->known * d;
    for (int64_t k = 0; k < d; k++) moved[k] = t * task->step[k], turned[k] = task->gradient[k] - task->before[k];
    double curvature = product(moved, turned, d);
    if (!(curvature > 0.01 * t * t * -fall)) return 0;
    task->inverse[task->known++] = 1 / curvature;
    return 1;
}

/* Compute the gradient of the last evaluation. */
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

/* Take at most `steps` damped Newton steps from c at one cut, always downhill; return the sums at the end, with the penalty
 * in their value. Loose stages of several coordinates keep a factor while the decrement falls fast enough. */
static Sums descend(Task *task, double *c, double cut, double tol, int64_t steps) {
    const int64_t d = task->size;
    const int loose = tol >= 1e-5, keeps = loose && d >= 8; /* as in stages.py, which states the measurements */
    double damping = 0, last = INFINITY;
    task->factored = task->factored && keeps;
    margins(task, c, task->v);
    memset(task->dv, 0, sizeof(double) * (size_t)task->rows);
    memset(task->step, 0, sizeof(double) * (size_t)d);
    Sums sums = look(task, cut, 0);
    sums.value += penalised(task, c, 0);
    turn(task, c);
    for (; sums.inside > 0 && sums.steps < steps; sums.steps++) { /* if nothing is inside, the cut is too low */
        double fall = 0, t = 1;
        int fresh = 0, shortened = 0;
        if (task->factored && last > 0) {
            newton_step(task);
            fall = product(task->gradient, task->step, d);
        }
        if (!task->factored || last == 0 || (!(-fall <= 0.5 * last) && -fall > tol * sums.value)) {
            if (!refresh(task, &damping)) break;
            newton_step(task);
            fall = product(task->gradient, task->step, d), fresh = 1;
        }
        if (!(-fall > tol * sums.value)) break;
        margins(task, task->step, task->dv);
        Sums trial = sums;
        int falls = 0;
        for (;; shortened++, t *= loose ? 0.25 : 0.5) {
            Sums there = look(task, cut, t); /* the first trial is usually accepted, and its derivatives serve the next step */
            trial.value = there.value + penalised(task, c, t), trial.inside = there.inside, trial.errors = there.errors;
            falls = trial.value <= sums.value + 1e-4 * t * fall;
            if (falls || !fresh || shortened == 39) break;
        }
        if (!falls && fresh) break;
        if (!falls) { /* the factor is too old: evaluate the last point again */
            look(task, cut, 0);
            task->factored = 0;
            continue;
        }
        for (int64_t k = 0; k < d; k++) c[k] += t * task->step[k], task->before[k] = task->gradient[k];
        for (int64_t i = 0; i < task->rows; i++) task->v[i] += t * task->dv[i];
        int stalled = !(sums.value - trial.value > 1e-4 * tol * sums.value); /* only rounding errors remain */
        sums = trial;
        if (stalled) break;
        turn(task, c);
        last = -fall;
        if (shortened || !keeps || !remember(task, t, fall)) last = 0; /* the factor is of no further use */
        if (shortened && loose) damping = damping > 0 ? 2 * damping : DAMPING;
        else damping = damping < 0.8 * DAMPING ? 0 : shortened ? damping : damping / 4;
    }
    return sums;
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

/* Compute for each row the growth of its share with the cut, times its mass, into `size_of`, and times its slope into
 * `first`; and the growth of its share with its minus margin, times its mass, into `second`. */
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

/* Return the derivative of the mass inside with respect to the cut while the minimum follows; the derivative of the minimum
 * is left in `step`. The factor is that of the last step of the stage. */
CLONES static double slope_at(Task *task, double cut) {
    const Window window = window_at(task, cut);
    const int64_t n = task->rows;
    if (task->loss == LOGISTIC) edges_as(LOGISTIC, window, task);
    else edges_as(HINGE, window, task);
    pull(task, task->first, task->gradient);
    newton_step(task);
    margins(task, task->step, task->dv);
    for (int64_t i = 0; i < n; i++) task->first[i] = 1;
    return dot(task->size_of, task->first, n) + dot(task->second, task->dv, n);
}
