/* SPDX-License-Identifier: MIT */
/* A library of the kind that looks symbols up, see lookup.c. */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

/* The oldest version of the C library's symbols. */
#ifdef __aarch64__
#define FIRST_VERSION "GLIBC_2.17"
#else
#define FIRST_VERSION "GLIBC_2.2.5"
#endif

/* Its own, which happens to have a name of verbs. */
const char *ibv_get_device_name(void *device);

const char *ibv_get_device_name(void *device)
{
	(void)device;
	return "wrapper";
}

/* Stands before the C library's. The next one must be that of libraries behind this one, whatever
 * dlsym() passes through. */
pid_t getpid(void)
{
	void *symbol = dlsym(RTLD_NEXT, "getpid");
	void *same = dlvsym(RTLD_NEXT, "getpid", FIRST_VERSION);
	pid_t (*real)(void);

	if (!symbol || symbol != same || symbol == dlsym(RTLD_DEFAULT, "getpid"))
		return 0;
	memcpy(&real, &symbol, sizeof(real));
	return -real();
}
