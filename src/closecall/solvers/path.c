/* The compiled inner loop of a path: one stage of Newton steps at a fixed cut, and the derivative of its minimum with respect
 * to the cut.
 *
 * The NumPy version is `Walk` in stages.py, which also places the cuts.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math", "no-math-errno", "fp-contract=off")
#endif
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "looks.h"

/* Write the Cholesky factor of matrix + damping * diagonal, transposed, into `factor`; return 0 if it is not positive
 * definite. A coordinate of size 0 has no gradient, so any factor leaves it unchanged. */
CLONES static int factorise(Task *task, double damping) {
    const int64_t d = task->on->size, wide = task->padded;
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

/* Compute the step against the gradient from the factor, corrected by the steps taken since the factor was computed
 * (two loops, as in L-BFGS). */
static void newton_step(Task *task) {
    const int64_t d = task->on->size, wide = task->padded;
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
    for (int64_t k = 0; k < task->on->size; k++) {
        task->matrix[k * task->padded + k] += task->on->penalty[k];
        task->diagonal[k] += task->on->penalty[k];
    }
    task->known = 0, task->factored = 0;
    for (int tries = 0; tries < 60 && !task->factored; tries++) {
        task->factored = factorise(task, *damping);
        if (!task->factored) *damping = *damping > 0 ? 2 * *damping : DAMPING;
    }
    return task->factored;
}

/* Record how a step of length t along `step` changed the gradient; return 0 if the factor can no longer be corrected,
 * because the memory is full or the curvature along the step is less than a hundredth of the prediction. */
static int remember(Task *task, double t, double fall) {
    const int64_t d = task->on->size;
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
    for (int64_t k = 0; k < task->on->size; k++) task->gradient[k] += task->on->penalty[k] * c[k];
}

static double penalised(const Task *task, const double *c, double t) {
    double sum = 0;
    for (int64_t k = 0; k < task->on->size; k++) {
        double there = c[k] + t * task->step[k];
        sum += task->on->penalty[k] * there * there;
    }
    return 0.5 * sum;
}

/* Take at most `steps` damped Newton steps from c at one cut, always downhill; return the sums at the end, with the penalty
 * in their value. Loose stages with several coordinates keep a factor while the decrement falls fast enough. */
static Sums descend(Task *task, double *c, double cut, double tol, int64_t steps) {
    const int64_t d = task->on->size;
    const int loose = tol >= 1e-5, keeps = loose && d >= 8; /* as in stages.py, which states the measurements */
    double damping = 0, last = INFINITY;
    task->factored = task->factored && keeps;
    margins(task, c, task->v);
    memset(task->dv, 0, sizeof(double) * (size_t)task->on->rows);
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
            Sums there = look(task, cut, t); /* the first trial is usually accepted, and the next step uses its derivatives */
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
        for (int64_t i = 0; i < task->on->rows; i++) task->v[i] += t * task->dv[i];
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

/* For each row, compute the growth of its share with the cut, times its mass (`size_of`), and also times its slope
 * (`first`); and the growth of its share with its negated margin, times its mass (`second`). */
INLINE void edges_as(int loss, Window window, Task *task) {
    const double half = window.width / 2, steep = 1 / window.width, falls = window.kind == CLOSE ? steep : 0.0;
    const double *mass = task->on->mass, *v = task->v;
    double *restrict first = task->first, *restrict second = task->second, *restrict grows = task->size_of;
    for (int64_t i = 0; i < task->on->rows; i++) {
        double l, p, b;
        loss_at(loss, task->on->kink, v[i], &l, &p, &b);
        double low = l - window.low, high = l - window.high, up = fabs(low) < half ? steep : 0.0;
        double down = fabs(high) < half ? falls : 0.0, beyond = down > 0 ? high : up > 0 ? -low : 0.0;
        double moved = mass[i] * (up + down) * (1 + window.spread * steep * beyond);
        grows[i] = moved;
        first[i] = moved * p;
        second[i] = mass[i] * (up - down) * p;
    }
}

enum { RESULTS = 5 }; /* a state holds results (RESULTS,), coordinates (size,), and a factor with its corrections */

static int64_t padded_to_four(int64_t size) { return (size + 3) / 4 * 4; }

/* Return how many numbers are in a state, and in the scratch memory of a path. */
EXPORT int64_t state_of(int64_t size) {
    return RESULTS + size + padded_to_four(size) * padded_to_four(size) + MEMORY * (2 * size + 1);
}

EXPORT int64_t room_of(int64_t rows, int64_t size) {
    const int64_t wide = padded_to_four(size);
    return 5 * rows + wide * wide + (wide + 2) * BLOCK + 4 * size;
}

/* `known` counts the corrections of the state's factor; it is -1 if there is none. */
static Task task_of(const Rows *on, double *state, int64_t known) {
    const int64_t n = on->rows, d = on->size, wide = padded_to_four(d);
    double *room = on->room;
    Task task = {.on = on, .padded = wide, .factored = known >= 0, .known = known > 0 ? (int)known : 0};
#define TAKE(count) (room += (count), room - (count))
    task.v = TAKE(n), task.dv = TAKE(n), task.first = TAKE(n), task.second = TAKE(n), task.size_of = TAKE(n);
    task.matrix = TAKE(wide * wide), task.packed = TAKE((wide + 2) * BLOCK);
    task.gradient = TAKE(d), task.before = TAKE(d), task.diagonal = TAKE(d), task.step = TAKE(d);
    task.factor = state + RESULTS + d, task.moved = task.factor + wide * wide;
    task.turned = task.moved + MEMORY * d, task.inverse = task.turned + MEMORY * d;
    return task;
}

/* Minimise at one cut from the coordinates of a state, in place; its results are the mass inside, the value, the errors, the
 * evaluations and the steps. Return how many corrections the last factor has. */
EXPORT int64_t settle(const Rows *on, double cut, double tol, int64_t steps, int64_t known, double *state) {
    Task task = task_of(on, state, known);
    Sums sums = descend(&task, state + RESULTS, cut, tol, steps);
    state[0] = sums.inside, state[1] = sums.value, state[2] = sums.errors;
    state[3] = (double)task.looks, state[4] = (double)sums.steps;
    return task.factored ? task.known : -1;
}

/* Return the derivative of the mass inside with respect to the cut, where the minimum of a state moves with the cut, and
 * write the derivative of the minimum to `drift`. The factor is that of the last step of the stage. `moved` is not zero
 * if the last stage in this memory ended elsewhere. */
EXPORT CLONES double slope(const Rows *on, double cut, int64_t known, int64_t moved, double *state, double *drift) {
    Task task = task_of(on, state, known);
    if (moved) margins(&task, state + RESULTS, task.v);
    const Window window = window_at(&task, cut);
    if (on->loss == LOGISTIC) edges_as(LOGISTIC, window, &task);
    else edges_as(HINGE, window, &task);
    pull(&task, task.first, task.gradient);
    newton_step(&task);
    margins(&task, task.step, task.dv);
    memcpy(drift, task.step, sizeof(double) * (size_t)on->size);
    for (int64_t i = 0; i < on->rows; i++) task.first[i] = 1;
    return dot(task.size_of, task.first, on->rows) + dot(task.second, task.dv, on->rows);
}

/* Write the losses at c, with rounded kinks. */
EXPORT CLONES void losses(const Rows *on, const double *c, double *out) {
    Task task = task_of(on, out, -1);
    double p, b, kink = on->kink;
    margins(&task, c, task.v);
    if (on->loss == LOGISTIC)
        for (int64_t i = 0; i < on->rows; i++) loss_at(LOGISTIC, kink, task.v[i], out + i, &p, &b);
    else
        for (int64_t i = 0; i < on->rows; i++) loss_at(HINGE, kink, task.v[i], out + i, &p, &b);
}
