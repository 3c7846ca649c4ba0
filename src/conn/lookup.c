/* SPDX-License-Identifier: MIT */
#include "conn/lookup.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/err.h"
#include "util/thread.h"

#define ADDRESSES_MAX 4
#define NS_PER_MS     1000000
#define NS_PER_S      1000000000

struct snt__lookup {
	atomic_int holders; /* the thread, and the caller */
	atomic_bool done;   /* the results do not change any more */
	int fd;
	uint16_t port;
	int result;
	struct sockaddr_storage address[ADDRESSES_MAX];
	char text[256]; /* of an error */
	char host[];
};

static atomic_uint running;

unsigned snt__lookup_count(void)
{
	return atomic_load(&running);
}

void snt__lookup_drop(struct snt__lookup *lookup)
{
	if (!lookup || atomic_fetch_sub(&lookup->holders, 1) > 1)
		return;
	close(lookup->fd);
	free(lookup);
}

static void *look_up_address(void *arg)
{
	struct snt__lookup *lookup = arg;
	uint64_t one = 1;

	lookup->result = snt__address_find(lookup->host, lookup->port, lookup->address,
					   ADDRESSES_MAX);
	if (lookup->result < 0)
		snprintf(lookup->text, sizeof(lookup->text), "%s", snt_err_text());
	atomic_store(&lookup->done, true);
	/* A counter that is 0 has room. */
	(void)!write(lookup->fd, &one, sizeof(one));
	snt__lookup_drop(lookup);
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static struct snt__lookup *make_lookup(const char *host, uint16_t port)
{
	size_t length = strlen(host) + 1;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct snt__lookup *lookup;

	if (fd < 0)
		return NULL;
	lookup = calloc(1, sizeof(*lookup) + length);
	if (!lookup) {
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	memcpy(lookup->host, host, length);
	lookup->fd = fd;
	lookup->port = port;
	atomic_init(&lookup->holders, 2);
	return lookup;
}

int snt__lookup_start(const char *host, uint16_t port, struct snt__lookup **lookup_out)
{
	struct snt__lookup *lookup;
	int ret;

	if (atomic_fetch_add(&running, 1) >= SNT__LOOKUPS_MAX) {
		ret = snt__fail(EAGAIN,
				"%d host names are being resolved already; try "
				"again, or use addresses",
				SNT__LOOKUPS_MAX);
		goto err_count;
	}
	lookup = make_lookup(host, port);
	if (!lookup) {
		ret = snt__fail(errno, "no thread to resolve a host name with: %s",
				strerror(errno));
		goto err_count;
	}
	ret = snt__thread_start(NULL, "to look up a host", look_up_address, lookup);
	if (ret)
		goto err_free;
	*lookup_out = lookup;
	return 0;

err_free:
	close(lookup->fd);
	free(lookup);
err_count:
	atomic_fetch_sub(&running, 1);
	return ret;
}

int snt__lookup_fd(const struct snt__lookup *lookup)
{
	return lookup->fd;
}

int snt__lookup_result(const struct snt__lookup *lookup, struct sockaddr_storage *out,
		       unsigned max)
{
	unsigned count;

	if (!atomic_load(&lookup->done))
		return -EINPROGRESS;
	if (lookup->result < 0)
		return snt__fail(-lookup->result, "%s", lookup->text);
	count = (unsigned)lookup->result < max ? (unsigned)lookup->result : max;
	memcpy(out, lookup->address, count * sizeof(*out));
	return (int)count;
}

/* Signals do not extend the wait. */
static bool wait_done(const struct snt__conn_loop *conn_loop,
		      const struct snt__lookup *lookup, int64_t timeout_ns)
{
	struct pollfd fd = { .fd = lookup->fd, .events = POLLIN };
	uint64_t begin = snt__conn_loop_now(conn_loop);
	int ret;

	do {
		int64_t left = snt__conn_loop_left(conn_loop, timeout_ns, begin);
		struct timespec time = { left / NS_PER_S, left % NS_PER_S };

		ret = ppoll(&fd, 1, &time, NULL);
	} while (ret < 0 && errno == EINTR);
	return ret > 0;
}

int snt__lookup_within(const struct snt__conn_loop *conn_loop, const char *host,
		       uint16_t port, uint64_t timeout_ns, struct sockaddr_storage *out,
		       unsigned max)
{
	struct snt__lookup *lookup;
	int ret = snt__lookup_start(host, port, &lookup);

	if (ret)
		return ret;
	if (timeout_ns > INT64_MAX)
		timeout_ns = INT64_MAX;
	if (wait_done(conn_loop, lookup, (int64_t)timeout_ns))
		ret = snt__lookup_result(lookup, out, max);
	else
		ret = snt__fail(ETIMEDOUT,
				"the host \"%s\" was not resolved within %llu ms; "
				"use an address instead",
				host, (unsigned long long)timeout_ns / NS_PER_MS);
	snt__lookup_drop(lookup);
	return ret;
}
