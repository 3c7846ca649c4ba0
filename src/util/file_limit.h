/* SPDX-License-Identifier: MIT */
#ifndef SNT_UTIL_FILE_LIMIT_H
#define SNT_UTIL_FILE_LIMIT_H

#include <signal.h>
#include <stdbool.h>

/*
 * Around a call that makes a file larger: beyond RLIMIT_FSIZE (ulimit -f) the call fails
 * with EFBIG, and the kernel sends SIGXFSZ to the calling thread, which ends the process
 * unless the program handles it. Memory of the library's own is not what that limit is for,
 * so the signal is blocked in this thread and taken back. Handlers and other threads are
 * left alone, and so is a SIGXFSZ that was pending before. errno is preserved.
 */
struct snt__file_limit {
	sigset_t before;
	bool was_pending;
};

void snt__file_limit_hold(struct snt__file_limit *limit);
void snt__file_limit_release(const struct snt__file_limit *limit);

#endif
