/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "stream/stream.h"
#include "util/err.h"

static int wait_for_event(struct snt_stream *stream, unsigned event)
{
	int ret = snt_stream_wait(stream, event, -1);

	/* If the stream has ended, the next call returns the reason. */
	return ret < 0 && !(snt__stream_is_over(stream) && ret == stream->status) ? ret
										  : 0;
}

static ssize_t read_some_shielded(struct snt_stream *stream, char *buffer, size_t size)
{
	ssize_t ret;

	while ((ret = snt_stream_read(stream, buffer, size)) == -EAGAIN) {
		ret = wait_for_event(stream, SNT_STREAM_READABLE);
		if (ret)
			break;
	}
	if (ret >= 0)
		return ret;
	errno = (int)-ret;
	return -1;
}

/* Writing less than everything is an error by the rules of fopencookie(3). */
static ssize_t write_some_shielded(struct snt_stream *stream, const char *buffer,
				   size_t size)
{
	size_t done = 0;
	ssize_t ret = 0;

	while (done < size) {
		ret = snt_stream_write(stream, buffer + done, size - done);
		if (ret == -EAGAIN)
			ret = wait_for_event(stream, SNT_STREAM_WRITABLE);
		if (ret < 0)
			break;
		done += (size_t)ret;
	}
	if (ret < 0)
		errno = (int)-ret;
	return (ssize_t)done;
}

static int flush_shielded(struct snt_stream *stream)
{
	int ret;

	while ((ret = snt_stream_flush(stream)) == -EAGAIN) {
		ret = wait_for_event(stream, SNT_STREAM_FLUSHED);
		if (ret)
			break;
	}
	if (!ret)
		return 0;
	errno = -ret;
	return -1;
}

static ssize_t read_cookie(void *cookie, char *buffer, size_t size)
{
	struct snt_stream *stream = cookie;
	struct snt__shield kept;
	ssize_t ret;

	snt__shield_begin(stream->conn_loop->loop, &kept);
	ret = read_some_shielded(stream, buffer, size);
	snt__shield_end(&kept);
	return ret;
}

static ssize_t write_cookie(void *cookie, const char *buffer, size_t size)
{
	struct snt_stream *stream = cookie;
	struct snt__shield kept;
	ssize_t ret;

	snt__shield_begin(stream->conn_loop->loop, &kept);
	ret = write_some_shielded(stream, buffer, size);
	snt__shield_end(&kept);
	return ret;
}

static int flush_cookie(void *cookie)
{
	struct snt_stream *stream = cookie;
	struct snt__shield kept;
	int ret;

	snt__shield_begin(stream->conn_loop->loop, &kept);
	ret = flush_shielded(stream);
	snt__shield_end(&kept);
	return ret;
}

int snt_stream_file(struct snt_stream *stream, const char *mode, FILE **file_out)
{
	bool both = !strcmp(mode, "r+") || !strcmp(mode, "w+");
	bool reads = both || !strcmp(mode, "r");
	bool writes = both || !strcmp(mode, "w");
	cookie_io_functions_t functions = { .read = reads ? read_cookie : NULL,
					    .write = writes ? write_cookie : NULL,
					    .close = writes ? flush_cookie : NULL };
	FILE *file;

	if (!reads && !writes)
		return snt__fail(EINVAL,
				 "\"%s\" is not a mode for a FILE of a stream; use "
				 "\"r\", \"w\" or \"r+\"",
				 mode);
	file = fopencookie(stream, mode, functions);
	if (!file)
		return snt__fail(ENOMEM, "no memory for a FILE of a stream");
	*file_out = file;
	return 0;
}
