/* SPDX-License-Identifier: MIT */
/* Lists and opens soft devices as libibverbs does its own. */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dev/provider.h"
#include "dev/soft/core.h"
#include "dev/soft/udp/device.h"
#include "preload.h"
#include "real.h"
#include "util/err.h"
#include "util/log.h"
#include "util/setting.h"

/*
 * Devices live as long as the process, so that listing them twice gives the same
 * addresses. A child of the process has none of them and creates its own.
 */
pthread_mutex_t snt__preload_devices_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t made_by;
static struct snt__listing listing; /* kept, and the devices with it */
static struct snt__listing parents __attribute__((used)); /* the parent's */
static struct ibv_context *contexts[SNT_DEVICES_MAX];
static unsigned context_count; /* read without the lock: entries below stay */

enum wish {
	BOTH,
	NEVER,
	ONLY,
};

static void warn_no_devices(void)
{
	char text[SNT__ERR_TEXT_MAX + 32];

	snprintf(text, sizeof(text), "no soft devices: %s", snt_err_text());
	snt__log_stderr(NULL, SNT_LOG_WARN, text);
}

static enum wish wish;

/* The value of SENNIT_SOFT, except that auto means soft devices besides the kernel's: a
 * user who preloads this library wants some. */
static void read_wish(void)
{
	static const char *const words[] = { "auto", "never", "only", NULL };
	int word = snt__setting_word(snt__setting_get(SNT__SETTING_SOFT, NULL, NULL),
				     words);

	if (word < 0)
		warn_no_devices();
	wish = word < 0 ? NEVER : (enum wish)word;
}

static enum wish get_wish(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_wish);
	return wish;
}

/* Never called. Its address marks soft devices, including the parent's. */
static struct ibv_context *mark_of_soft_device(struct ibv_device *device, int fd)
{
	(void)device;
	(void)fd;
	return NULL;
}

static bool is_soft_device(const struct ibv_device *device)
{
	return device->_ops._dummy1 == mark_of_soft_device;
}

/* The paths that the kernel would use; files.c serves some of them. */
static void name_files(struct ibv_device *device)
{
	device->_ops._dummy1 = mark_of_soft_device;
	snprintf(device->dev_name, sizeof(device->dev_name), "%.32s", device->name);
	snprintf(device->dev_path, sizeof(device->dev_path),
		 "/sys/class/infiniband_verbs/%.32s", device->name);
	snprintf(device->ibdev_path, sizeof(device->ibdev_path),
		 "/sys/class/infiniband/%.32s", device->name);
}

static void make_devices(void)
{
	const struct snt__provider *provider = &snt__provider_soft;

	if (get_wish() == NEVER)
		return;
	if (provider->list(snt__setting_get(SNT__SETTING_SOFT_ADDRESSES, NULL, NULL),
			   &listing)) {
		warn_no_devices();
		return;
	}
	for (unsigned i = 0; i < listing.count; i++) {
		provider->open(&listing, i, &contexts[i]);
		name_files(contexts[i]->device);
	}
	__atomic_store_n(&context_count, listing.count, __ATOMIC_RELEASE);
}

struct snt__preload_devices snt__preload_devices(void)
{
	struct snt__preload_devices devices = { .context = contexts };

	pthread_mutex_lock(&snt__preload_devices_lock);
	if (made_by != getpid()) {
		made_by = getpid();
		parents = listing;
		context_count = 0;
		make_devices();
		snt__preload_watch_forks();
	}
	devices.count = context_count;
	pthread_mutex_unlock(&snt__preload_devices_lock);
	return devices;
}

bool snt__preload_may_end(void)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	for (unsigned i = 0; i < context_count; i++) {
		struct snt__udp_device *device = snt__udp_device_of(contexts[i]);

		for (unsigned tries = 0; !snt__udp_is_free(device); tries++) {
			if (tries == 20)
				return false;
			nanosleep(&moment, NULL);
		}
	}
	return made_by == getpid();
}

/* The last received messages may be unacknowledged: a thread that polls acknowledges at
 * its next poll, and the device's own thread may be too late for a process that
 * ends. */
__attribute__((destructor)) static void acknowledge_last_messages(void)
{
	if (!snt__preload_may_end())
		return;
	for (unsigned i = 0; i < context_count; i++) {
		struct snt__soft_device *device = snt__soft_device_of(contexts[i]);

		device->driver->kick(device->driver_arg);
	}
}

bool snt__preload_wants_real(void)
{
	return get_wish() != ONLY;
}

/* Also true of the parent's devices, whose verbs all fail. */
bool snt__preload_is_soft(const struct ibv_context *context)
{
	return context->device && is_soft_device(context->device);
}

const struct snt_control *snt__preload_control(void)
{
	return snt__soft_control();
}

static unsigned count_contexts(void)
{
	return __atomic_load_n(&context_count, __ATOMIC_ACQUIRE);
}

static struct ibv_context *context_of(const struct ibv_device *device)
{
	for (unsigned i = 0; i < count_contexts(); i++)
		if (contexts[i]->device == device)
			return contexts[i];
	return NULL;
}

const struct ibv_device *snt__preload_find(const char *name, size_t length)
{
	for (unsigned i = 0; i < count_contexts(); i++) {
		const struct ibv_device *device = contexts[i]->device;

		if (strlen(device->name) == length &&
		    memcmp(device->name, name, length) == 0)
			return device;
	}
	return NULL;
}

/*
 * Lists. The kernel's devices come first, so that a program that takes the first one
 * gets a real one.
 */

struct list {
	struct ibv_device **real;
	struct ibv_device *device[];
};

static struct list *make_list(struct ibv_device **real, int real_count)
{
	struct snt__preload_devices soft = snt__preload_devices();
	struct list *list = calloc(1, sizeof(*list) + (real_count + soft.count + 1) *
							      sizeof(list->device[0]));

	if (!list)
		return NULL;
	list->real = real;
	for (int i = 0; i < real_count; i++)
		list->device[i] = real[i];
	for (unsigned i = 0; i < soft.count; i++)
		list->device[real_count + i] = soft.context[i]->device;
	return list;
}

struct ibv_device **ibv_get_device_list(int *count_out)
{
	struct ibv_device **real = NULL;
	int count = 0, errno_real = ENOSYS;
	struct list *list;

	if (BYPASSED())
		return snt__real()->ibv_get_device_list(count_out);
	if (snt__preload_wants_real() && snt__real()->ibv_get_device_list) {
		real = snt__real()->ibv_get_device_list(&count);
		errno_real = errno;
	}
	list = make_list(real, real ? count : 0);
	if (list && !real && !list->device[0]) {
		free(list);
		list = NULL;
		errno = errno_real;
	}
	if (!list) {
		if (real)
			snt__real()->ibv_free_device_list(real);
		return NULL;
	}
	if (count_out)
		for (*count_out = 0; list->device[*count_out]; (*count_out)++)
			;
	return list->device;
}

void ibv_free_device_list(struct ibv_device **devices)
{
	struct list *list;

	if (BYPASSED()) {
		snt__real()->ibv_free_device_list(devices);
		return;
	}
	list = snt__container(devices, struct list, device);
	if (list->real)
		snt__real()->ibv_free_device_list(list->real);
	free(list);
}

/*
 * One device
 */

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	struct ibv_context *context = context_of(device);

	if (!is_soft_device(device))
		return snt__real()->ibv_get_device_guid(device);
	return context ? snt__soft_device_of(context)->guid : 0;
}

int ibv_get_device_index(struct ibv_device *device)
{
	if (!is_soft_device(device))
		return snt__real()->ibv_get_device_index(device);
	return -1;
}

/* Each caller gets a context of its own, as from libibverbs: UCX, for one, registers the fd of each
 * with its event loop. All show the device that is listed. */
struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *listed = context_of(device), *context = NULL;
	int ret = -ENODEV;

	if (!is_soft_device(device))
		return snt__real()->ibv_open_device(device);
	if (listed)
		ret = snt__soft_context_open(snt__soft_device_of(listed), device->name,
					     &context);
	if (!ret)
		context->device = device;
	return AS_POINTER(ret, context);
}

/* While there are objects in it, the context stays: unlike the kernel, a soft device has no list
 * by which it could destroy them. One of a parent's devices is the parent's. */
int ibv_close_device(struct ibv_context *context)
{
	struct ibv_context *listed;

	if (!snt__preload_is_soft(context))
		return snt__real()->ibv_close_device(context);
	listed = context_of(context->device);
	if (listed && listed != context)
		snt__soft_context_close(context);
	return 0;
}
