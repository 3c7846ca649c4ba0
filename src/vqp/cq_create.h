/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_CQ_CREATE_H
#define SNT_VQP_CQ_CREATE_H

struct snt_cq;

/* Destroys a CQ that has no QPs and was never given to the program. */
void snt__cq_abandon(struct snt_cq *cq);

#endif
