FROM python:3.12-slim AS base

# bubblewrap shuts trials in (the other tools of the sandbox are in the kernel); measured compilation builds C++.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap g++ \
    && rm -rf /var/lib/apt/lists/*

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 LAB_VAR=/var/lib/lab
WORKDIR /app

# The packages change less often than the code, so they are a layer of their own.
# For an image without CUDA: docker build --build-arg TORCH_INDEX=<index of the CPU-only builds>
ARG TORCH_INDEX=""
COPY requirements.txt requirements-s3.txt requirements-saml.txt constraints.txt ./
RUN if [ -n "$TORCH_INDEX" ]; then \
        pip install --no-deps --index-url "$TORCH_INDEX" "$(grep '^torch==' requirements.txt)"; \
    fi \
    && pip install -r requirements.txt -r requirements-s3.txt -r requirements-saml.txt

COPY experiments experiments
COPY webapp webapp
COPY workers workers
COPY labtools labtools
COPY docs/evidence docs/evidence
COPY manage.py ./

# A volume that is new takes owner and content of the folder that it is put on.
RUN useradd --create-home --uid 10001 lab \
    && mkdir -p /var/lib/lab/files /var/lib/lab/tls \
    && chown -R lab: /var/lib/lab \
    && chmod 700 /var/lib/lab/files \
    && python -m compileall -q experiments
# Which revision this is, for provenance and for hosts that join: a lab takes hosts of its own revision only.
ARG LAB_REVISION=""
ENV LAB_REVISION=$LAB_REVISION
USER lab
# Collecting static files reads the settings, which insist on their secrets; these are used for nothing else.
RUN SECRET_KEY=build ALLOWED_HOSTS=build DATABASE_URL=postgresql://build@build/build REDIS_URL=redis://build \
    DJANGO_SETTINGS_MODULE=webapp.settings.deployment python manage.py collectstatic --no-input

EXPOSE 8000
VOLUME ["/var/lib/lab/files"]
CMD ["python", "-m", "uvicorn", "webapp.asgi:application", "--host=0.0.0.0", "--port=8000", "--lifespan=off", "--no-proxy-headers"]
