/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_BALANCE_H
#define SNT_VQP_BALANCE_H

#include "vqp/qp.h"

/* The lanes' shares, where they do not simply take turns. */

/* Checks the weights; -EINVAL. */
int snt__balance_check(const struct snt_qp *qp, const struct snt_qp_opts *opts);

/* After a change of the options. */
void snt__balance_set(struct snt_qp *qp);

/* The lane for `count` WRs of `size` bytes; NULL: none has room. */
struct snt__lane *snt__balance_pick(struct snt_qp *qp, uint32_t count, uint64_t size);

/* By time: so many bytes of this lane have been acknowledged. */
void snt__balance_learn(struct snt_qp *qp, struct snt__lane *lane, uint64_t bytes);

#endif
