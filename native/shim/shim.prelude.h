/* SPDX-License-Identifier: Apache-2.0 */
#include "channel.h"
#include "device.h"
#include "fast.h"
#include "library.h"
#include "log.h"
#include "memory.h"
