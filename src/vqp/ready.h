/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_READY_H
#define SNT_VQP_READY_H

#include <stdbool.h>

struct snt_qp;

/* An entry in a virtual CQ's list of QPs that may have something to report. */
struct snt__ready {
	struct snt__ready *next;
	struct snt_qp *qp;
	bool listed;
	bool receives; /* reports receives, else sends */
};

#endif
