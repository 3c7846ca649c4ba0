/* SPDX-License-Identifier: MIT */
/*
 * What dlsym() and dlvsym() find with the preload library in the process: the functions of verbs
 * and rdma_cm are that library's, and everything else is what it would be without.
 *
 * usage: lookup WRAPPER
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(condition)                                               \
	do {                                                           \
		if (!(condition)) {                                    \
			printf("line %d: %s\n", __LINE__, #condition); \
			return 1;                                      \
		}                                                      \
	} while (0)

static bool is_in(const void *symbol, const char *library)
{
	Dl_info info;

	return dladdr(symbol, &info) && strstr(info.dli_fname, library);
}

static int find_wrapper(const char *path)
{
	void *wrapper = dlopen(path, RTLD_NOW | RTLD_NOLOAD);

	CHECK(getpid() == -syscall(SYS_getpid));
	CHECK(wrapper);
	CHECK(is_in(dlsym(wrapper, "ibv_get_device_name"), "wrapper"));
	return 0;
}

static int find_rdma(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void *cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);

	CHECK(verbs && cm);
	CHECK(is_in(dlsym(verbs, "ibv_open_device"), "libsennit-preload.so"));
	CHECK(is_in(dlvsym(verbs, "ibv_open_device", "IBVERBS_1.1"),
		    "libsennit-preload.so"));
	CHECK(is_in(dlvsym(verbs, "ibv_open_device", "IBVERBS_1.0"),
		    "libibverbs.so.1"));
	/* It is given no object: soft devices need none of their own. */
	CHECK(is_in(dlsym(verbs, "ibv_wc_status_str"), "libibverbs.so.1"));
	CHECK(is_in(dlsym(cm, "rdma_create_id"), "libsennit-preload.so"));
	CHECK(is_in(dlvsym(cm, "rdma_create_id", "RDMACM_1.0"),
		    "libsennit-preload.so"));
	/* librdmacm is linked with libibverbs, so that its handle has these, too. */
	CHECK(is_in(dlsym(cm, "ibv_open_device"), "libsennit-preload.so"));
	CHECK(is_in(dlsym(cm, "rsocket"), "librdmacm.so.1"));
	/* With a version, not even the order of libraries leads to those of this one. */
	CHECK(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL));
	CHECK(is_in(dlvsym(RTLD_DEFAULT, "ibv_open_device", "IBVERBS_1.1"),
		    "libsennit-preload.so"));
	CHECK(is_in(dlsym(RTLD_DEFAULT, "ibv_open_device"), "libsennit-preload.so"));
	return 0;
}

static int copy_library(const char *from, int to)
{
	char buffer[65536];
	int fd = open(from, O_RDONLY);
	ssize_t length;

	CHECK(fd >= 0);
	while ((length = read(fd, buffer, sizeof(buffer))) > 0)
		CHECK(write(to, buffer, (size_t)length) == length);
	close(fd);
	return (int)length;
}

/* A copy with the name that packages for Python give to it. */
static int find_renamed(void)
{
	char path[] = "/tmp/libibverbs-XXXXXX.so.1";
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *renamed;
	int fd = mkstemps(path, strlen(".so.1"));
	Dl_info info;

	CHECK(fd >= 0 && dladdr(dlsym(verbs, "ibv_wc_status_str"), &info));
	CHECK(!copy_library(info.dli_fname, fd));
	close(fd);
	renamed = dlopen(path, RTLD_NOW);
	unlink(path);
	CHECK(renamed && renamed != verbs);
	CHECK(is_in(dlsym(renamed, "ibv_wc_status_str"), path));
	CHECK(is_in(dlvsym(renamed, "ibv_open_device", "IBVERBS_1.1"),
		    "libsennit-preload.so"));
	return 0;
}

static int find_nothing(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
	void *libc = dlopen("libc.so.6", RTLD_NOW);

	CHECK(!dlsym(verbs, "ibv_no_such_verb"));
	CHECK(strstr(dlerror(), "ibv_no_such_verb"));
	CHECK(!dlvsym(verbs, "ibv_open_device", "IBVERBS_77"));
	CHECK(strstr(dlerror(), "IBVERBS_77"));
	CHECK(!dlsym(libc, "ibv_open_device") && dlerror());
	CHECK(dlsym(libc, "malloc") && !dlerror());
	return 0;
}

static void *find_many(void *arg)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
	void *symbol = dlsym(verbs, "ibv_open_device");

	for (unsigned i = 0; i < 2000 && symbol; i++)
		if (dlsym(verbs, "ibv_open_device") != symbol ||
		    !dlsym(verbs, "malloc"))
			symbol = NULL;
	dlclose(verbs);
	return symbol ? arg : NULL;
}

static int find_in_threads(void)
{
	pthread_t threads[4];
	void *result;

	for (unsigned i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, find_many, threads));
	for (unsigned i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], &result) && result == threads);
	return 0;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	return find_wrapper(argv[1]) || find_rdma() || find_renamed() ||
	       find_nothing() || find_in_threads();
}
