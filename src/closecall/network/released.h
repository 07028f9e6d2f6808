/* The descent of the paper's released experiments, for two classes: full-batch steps with momentum on the sum of the
 * selected losses, with alpha on all weights. If the aggregate (without the penalty; for close-k plus one for each error
 * outside the selection) exceeds 1.1 times its lowest value so far, the rate, initially 1, is halved and the network
 * returns to the lowest value. A network that hardly moves takes one more step and stops. */
enum { GRACE = 5 };
#define MOMENTUM 0.9f
#define RISE 1.1
#define LEAST_RATE 1e-10
#define STILL 1e-3

/* The aggregate at the scores; `choose` has left the weights of the examples in its scratch. */
INLINE double value_of(const Job *job, const Network *net) {
    const float *weights = job->scratch + 2 * ((job->samples + LANES - 1) / LANES * LANES);
    double sum = 0, product = 1; /* logarithms are slow: take one for many factors */
    for (int64_t i = 0; i < job->samples; i++) {
        double m = job->signs[i] * job->scores[i], mass = job->masses ? job->masses[i] : 1;
        double w = net->kind == AVERAGE ? mass : mass * weights[i];
        if (w == 0) {
            sum += net->kind == CLOSE && m < 0 ? mass : 0;
        } else if (net->loss == LOGISTIC) {
            double factor = 1 + exp_f32((float)(m < 0 ? m : -m));
            sum += m < 0 ? -m * w : 0;
            if (w != 1) sum += w * log(factor);
            product *= w == 1 ? factor : 1;
            if (product > 1e300) sum += log(product), product = 1;
        } else {
            sum += m < 1 ? w * (1 - m) : 0;
        }
    }
    return sum + log(product);
}

/* How far a step went: the root of the summed lengths of the moves of each layer's weights and of its intercepts. */
INLINE double moved(const Job *job, const float *velocity, double rate) {
    double lengths = 0;
    for (int layer = 0; layer < 3; layer++) {
        double all = 0, intercepts = 0;
        int64_t seen = seen_by(job, layer);
        for (int64_t unit = 0; unit < units(job, layer); unit++) {
            const float *row = velocity + offset(job, layer) + unit * seen;
            for (int64_t i = 0; i < seen; i++) all += (double)row[i] * row[i];
            intercepts += (double)row[job->features] * row[job->features];
        }
        all -= intercepts;
        lengths += sqrt(all > 0 ? all : 0) + sqrt(intercepts);
    }
    return sqrt(rate * lengths);
}

/* One network from its start to its end, in at most `steps` steps; `square` keeps the best. k is (steps,). A patient
 * one does not end early. Returns how many steps were taken. */
EXPORT CLONES int64_t network_descend(const Job *job, Network *net, int64_t steps, const double *k, int32_t patient) {
    int64_t number = offset(job, 2) + job->outputs * seen_by(job, 2), reset = 0;
    size_t bytes = (size_t)number * sizeof(float);
    double rate = 1, lowest = INFINITY;
    float *weights = net->weights, *velocity = net->mean, *best = net->square, alpha = (float)net->alpha;
    memcpy(best, weights, bytes);
    memset(velocity, 0, bytes);
    for (int64_t step = 0, stop = 0; step < steps; step++) {
        int64_t last = stop;
        double size = 0, value = INFINITY;
        forward(job, weights);
        margins(job, NULL);
        for (int64_t i = 0; i < job->samples; i++) size += fabs((double)job->scores[i]);
        if (size < INFINITY) {
            choose(job->pulls, job->samples, net->loss, net->kind, k[step], net->m, job->total, job->factors,
                   job->masses, job->scratch, job->room_mass, net->hint);
            value = value_of(job, net);
        }
        if (!(value < INFINITY) || value > RISE * lowest) {
            rate /= 2;
            reset = step;
            memcpy(weights, best, bytes);
            memset(velocity, 0, bytes);
        } else {
            if (value < lowest) {
                lowest = value;
                memcpy(best, weights, bytes);
            }
            if (step) {
                slopes(job, weights, NULL);
                for (int64_t i = 0; i < number; i++) {
                    velocity[i] = MOMENTUM * velocity[i] + job->gradient[i] + alpha * job->penalized[i] * weights[i];
                    weights[i] -= (float)rate * velocity[i];
                }
                stop |= !patient && reset + GRACE <= step && moved(job, velocity, rate) < STILL;
            }
        }
        stop |= rate < LEAST_RATE;
        if (last) return step + 1;
    }
    return steps;
}
