/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SOFT_RESOURCES_H
#define BENCH_SOFT_RESOURCES_H

#include "lib/bench.h"
#include "soft/end.h"

/* In a process of its own, at the other end of a socket. */
void resources_be_peer(int control);

void resources_measure(struct bench *bench, int control);

#endif
