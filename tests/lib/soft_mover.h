/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_UNIT_SOFT_MOVER_H
#define SENNIT_TESTS_UNIT_SOFT_MOVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dev/soft/device.h"

/*
 * Two soft devices, 10.0.0.1 and 10.0.0.2, whose packets move in a thread of their own: all
 * that is between it and the program is the driver's lock.
 */
struct soft_mover {
	struct snt__soft_device *device[2];
	uint64_t (*now_ns)(void); /* NULL: time stands still */
	pthread_mutex_t lock;
	pthread_cond_t kicked;
	pthread_t thread;
	bool kick, over;
	unsigned random;
};

void soft_mover_open(struct soft_mover *mover, uint64_t (*now_ns)(void));
void soft_mover_start(struct soft_mover *mover);
void soft_mover_stop(struct soft_mover *mover);
void soft_mover_close(struct soft_mover *mover);

#endif
