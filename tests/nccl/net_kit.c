/* SPDX-License-Identifier: MIT */
#include "net_kit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	int version;
	const struct nccl_net_v8 *v8;
	const struct nccl_net_v9 *v9;
	const struct nccl_net_v10 *v10;
	const struct nccl_net_v11 *v11;
	const struct nccl_net_v12 *v12;
	void *ctx;
} net;

/*
 * The log
 */

#define LINES_MAX 512

static struct {
	pthread_mutex_t lock;
	unsigned warnings, lines;
	char warning[1200];
	char line[LINES_MAX][200];
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void log_line(enum nccl_log_level level, unsigned long flags, const char *file,
		     int line, const char *format, ...)
{
	va_list list;

	(void)flags;
	(void)file;
	(void)line;
	pthread_mutex_lock(&logged.lock);
	va_start(list, format);
	if (level == NCCL_WARN) {
		logged.warnings++;
		vsnprintf(logged.warning, sizeof(logged.warning), format, list);
	} else {
		vsnprintf(logged.line[logged.lines++ % LINES_MAX],
			  sizeof(logged.line[0]), format, list);
	}
	va_end(list);
	if (getenv("NET_KIT_VERBOSE"))
		fprintf(stderr, "# %s\n",
			level == NCCL_WARN
				? logged.warning
				: logged.line[(logged.lines - 1) % LINES_MAX]);
	pthread_mutex_unlock(&logged.lock);
}

unsigned net_warnings(void)
{
	unsigned count;

	pthread_mutex_lock(&logged.lock);
	count = logged.warnings;
	pthread_mutex_unlock(&logged.lock);
	return count;
}

const char *net_last_warning(void)
{
	return logged.warning;
}

const char *net_info_with(const char *phrase)
{
	static char found[sizeof(logged.line[0])];
	const char *result = NULL;

	pthread_mutex_lock(&logged.lock);
	for (unsigned i = 0; i < LINES_MAX; i++) {
		if (!strstr(logged.line[i], phrase))
			continue;
		snprintf(found, sizeof(found), "%s", logged.line[i]);
		result = found;
	}
	pthread_mutex_unlock(&logged.lock);
	return result;
}

/*
 * The versions
 */

static const void *symbol(void *library, const char *name)
{
	const void *found = dlsym(library, name);

	if (!found) {
		fprintf(stderr, "there is no %s\n", name);
		exit(1);
	}
	return found;
}

void net_load(int version)
{
	const char *path = getenv("SNT_NCCL_PLUGIN");
	void *library =
		dlopen(path ? path : "libnccl-net-sennit.so", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	net.version = version;
	net.v8 = symbol(library, "ncclNetPlugin_v8");
	net.v9 = symbol(library, "ncclNetPlugin_v9");
	net.v10 = symbol(library, "ncclNetPlugin_v10");
	net.v11 = symbol(library, "ncclNetPlugin_v11");
	net.v12 = symbol(library, "ncclNetPlugin_v12");
}

int net_init(void)
{
	struct nccl_comm_config config = { .traffic_class = NCCL_ID_UNDEFINED };

	switch (net.version) {
	case 8:
		return net.v8->init(log_line);
	case 9:
		return net.v9->init(log_line);
	case 10:
		return net.v10->init(log_line, NULL);
	case 11:
		return net.v11->init(&net.ctx, 1, &config, log_line, NULL);
	default:
		return net.v12->init(&net.ctx, 1, &config, log_line, NULL);
	}
}

void net_finalize(void)
{
	if (net.version >= 11)
		net.v11->finalize(net.ctx);
}

/* Members that all tables have at the same place. */
int net_devices(int *count)
{
	return net.v8->devices(count);
}

#define COPY(to, from, member) (to)->member = (from).member
#define COPY_ALL(to, from)                     \
	do {                                   \
		COPY(to, from, name);          \
		COPY(to, from, pci_path);      \
		COPY(to, from, guid);          \
		COPY(to, from, ptr_support);   \
		COPY(to, from, reg_is_global); \
		COPY(to, from, speed);         \
		COPY(to, from, port);          \
		COPY(to, from, max_comms);     \
		COPY(to, from, max_recvs);     \
		COPY(to, from, device_type);   \
	} while (0)
#define COPY_VDEVICE(to, from)                                      \
	do {                                                        \
		COPY(to, from, vdevice.count);                      \
		memcpy((to)->vdevice.device, (from).vdevice.device, \
		       sizeof((from).vdevice.device));              \
		COPY(to, from, max_p2p_bytes);                      \
	} while (0)

int net_properties(int device, struct nccl_props_v12 *props)
{
	struct nccl_props_v8 v8;
	struct nccl_props_v9 v9;
	struct nccl_props_v11 v11;
	int ret;

	memset(props, 0, sizeof(*props));
	switch (net.version) {
	case 8:
		ret = net.v8->get_properties(device, &v8);
		if (!ret)
			COPY_ALL(props, v8);
		return ret;
	case 9:
	case 10:
		ret = net.version == 9 ? net.v9->get_properties(device, &v9)
				       : net.v10->get_properties(device, &v9);
		if (!ret) {
			COPY_ALL(props, v9);
			COPY_VDEVICE(props, v9);
		}
		return ret;
	case 11:
		ret = net.v11->get_properties(device, &v11);
		if (!ret) {
			COPY_ALL(props, v11);
			COPY_VDEVICE(props, v11);
		}
		return ret;
	default:
		return net.v12->get_properties(device, props);
	}
}

int net_make_vdevice(int *device, struct nccl_vdevice *parts)
{
	return net.v11->make_vdevice(device, parts);
}

int net_listen(int device, void *handle, void **listener)
{
	if (net.version >= 11)
		return net.v11->listen(net.ctx, device, handle, listener);
	return net.v8->listen(device, handle, listener);
}

int net_connect(int device, void *handle, void **comm)
{
	struct nccl_comm_config config = { .traffic_class = NCCL_ID_UNDEFINED };

	if (net.version >= 11)
		return net.v11->connect(net.ctx, device, handle, comm, NULL);
	if (net.version == 10)
		return net.v10->connect(device, &config, handle, comm, NULL);
	return net.v8->connect(device, handle, comm, NULL);
}

int net_accept(void *listener, void **comm)
{
	void *device_handle = &net;
	const int ret = net.v8->accept(listener, comm, &device_handle);

	if (!ret && device_handle) {
		fprintf(stderr, "a host device has no handle for GPUs\n");
		exit(1);
	}
	return ret;
}

int net_reg(void *comm, void *data, size_t size, void **memory)
{
	return net.v8->reg_mr(comm, data, size, NCCL_HOST, memory);
}

int net_dereg(void *comm, void *memory)
{
	return net.v8->dereg_mr(comm, memory);
}

int net_isend(void *comm, void *data, size_t size, void *memory, void **request)
{
	switch (net.version) {
	case 8:
		return net.v8->isend(comm, data, size, 7, memory, request);
	case 9:
		return net.v9->isend(comm, data, size, 7, memory, request);
	default:
		return net.v10->isend(comm, data, size, 7, memory, NULL, request);
	}
}

int net_irecv(void *comm, void *data, size_t size, void *memory, void **request)
{
	int narrow = size, tag = 7;

	switch (net.version) {
	case 8:
		return net.v8->irecv(comm, 1, &data, &narrow, &tag, &memory, request);
	case 9:
		return net.v9->irecv(comm, 1, &data, &size, &tag, &memory, request);
	default:
		return net.v10->irecv(comm, 1, &data, &size, &tag, &memory, NULL,
				      request);
	}
}

int net_test(void *request, int *done, int *size)
{
	return net.version == 8 ? net.v8->test(request, done, size)
				: net.v9->test(request, done, size);
}

int net_close_send(void *comm)
{
	return net.v8->close_send(comm);
}

int net_close_recv(void *comm)
{
	return net.v8->close_recv(comm);
}

int net_close_listen(void *listener)
{
	return net.v8->close_listen(listener);
}

struct net_pair net_connect_pair(void)
{
	char handle[NCCL_HANDLE_BYTES];
	struct net_pair pair = { NULL, NULL };
	void *listener;
	int ret = net_listen(0, handle, &listener);

	while (!ret && (!pair.sender || !pair.receiver)) {
		if (!pair.sender)
			ret = net_connect(0, handle, &pair.sender);
		if (!ret && !pair.receiver)
			ret = net_accept(listener, &pair.receiver);
	}
	if (ret) {
		fprintf(stderr, "no pair: %s\n", net_last_warning());
		exit(1);
	}
	net_close_listen(listener);
	return pair;
}
