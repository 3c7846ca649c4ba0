/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SOFT_IPERF_H
#define BENCH_SOFT_IPERF_H

/* What iperf3 takes to write 1 MiB to a stream of TCP on loopback, in ns; 0 if it is not
 * installed, or does not work. Takes a second. */
double iperf_write_mib(void);

#endif
