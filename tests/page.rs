//! The page in a browser, as its tests use it. Elements that they look at have a `data-test` attribute.

use crate::{Browser, Service};
use anyhow::{Context, Result, ensure};
use fantoccini::Locator;
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use serde_json::Value;
use std::path::PathBuf;

/// The page of a service, opened at an address of its own.
#[derive(Debug)]
pub struct Page {
    /// The service.
    pub service: Service,
    /// The browser.
    pub browser: Browser,
}

impl Page {
    /// Starts a service and a browser, and opens an address.
    ///
    /// # Errors
    /// When the page does not come up.
    pub async fn open(hash: &str) -> Result<Page> {
        let page = Page { service: Service::start(), browser: Browser::start().await? };
        page.go(hash).await?;
        Ok(page)
    }

    /// Opens another address.
    ///
    /// # Errors
    /// When the page does not come up.
    pub async fn go(&self, hash: &str) -> Result<()> {
        let url = self.service.page(hash);
        self.browser.client.goto(&url).await?;
        let has_page = "return !document.querySelector('#page .boot')";
        self.browser.until("the page", has_page).await?;
        Ok(())
    }

    /// An attribute of the element under test, or null.
    ///
    /// # Errors
    /// When the driver fails.
    pub async fn attribute(&self, test: &str, name: &str) -> Result<Value> {
        let script = format!(
            "return document.querySelector('[data-test=\"{test}\"]')?.getAttribute('{name}')"
        );
        self.browser.run(&script).await
    }

    /// Waits until an attribute of the element under test has a value.
    ///
    /// # Errors
    /// When it never has, with the page's messages.
    pub async fn until(&self, test: &str, name: &str, value: &str) -> Result<()> {
        let script = format!(
            "return document.querySelector('[data-test=\"{test}\"]')?.getAttribute('{name}') === '{value}'"
        );
        let what = format!("{test} to have {name} = {value}");
        let waited = self.browser.until(&what, &script).await;
        if waited.is_err() {
            self.browser.screenshot("failed").await?;
        }
        let text = self.browser.run("return document.body.innerText").await?;
        waited.map(drop).with_context(|| text.to_string())
    }

    /// The text of the element under test; empty if there is none.
    ///
    /// # Errors
    /// When the driver fails.
    pub async fn text(&self, test: &str) -> Result<String> {
        let script = format!("return document.querySelector('[data-test=\"{test}\"]')?.innerText");
        let text = self.browser.run(&script).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Clicks on the element under test, once it is there.
    ///
    /// # Errors
    /// When it never is.
    pub async fn click(&self, test: &str) -> Result<()> {
        let locator = format!("[data-test=\"{test}\"]");
        let found = self.browser.client.wait().for_element(Locator::Css(&locator)).await;
        found.with_context(|| test.to_owned())?.click().await?;
        Ok(())
    }

    /// Chooses files in a field for them.
    ///
    /// # Errors
    /// When there is no such field.
    pub async fn choose(&self, test: &str, files: &[PathBuf]) -> Result<()> {
        let locator = format!("[data-test=\"{test}\"]");
        let input = self.browser.client.find(Locator::Css(&locator)).await?;
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        // chromedriver takes several files as lines.
        Ok(input.send_keys(&names.join("\n")).await?)
    }

    /// Presses a key.
    ///
    /// # Errors
    /// When the driver fails.
    pub async fn press(&self, key: char) -> Result<()> {
        let keys = KeyActions::new("keys".to_owned())
            .then(KeyAction::Down { value: key })
            .then(KeyAction::Up { value: key });
        Ok(self.browser.client.perform_actions(keys).await?)
    }

    /// The moment that is shown.
    ///
    /// # Errors
    /// When there is none.
    pub async fn moment(&self) -> Result<usize> {
        let moment = self.attribute("transport", "data-moment").await?;
        Ok(moment.as_str().unwrap_or_default().parse()?)
    }

    /// Moves the scrub bar.
    ///
    /// # Errors
    /// When the driver fails.
    pub async fn scrub(&self, moment: usize) -> Result<()> {
        let scrub = format!(
            "const scrub = document.querySelector('[data-test=scrub]');
             scrub.value = {moment}; scrub.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        );
        self.browser.run(&scrub).await?;
        Ok(())
    }

    /// The values of a rank that the page shows at the moment it stands at.
    ///
    /// # Errors
    /// When there are none.
    pub async fn values(&self) -> Result<Vec<f32>> {
        let values = "const list = document.querySelector('[data-test=elements]');
            const at = document.querySelector('[data-test=transport]').dataset;
            if (!list || list.dataset.moment !== at.moment || at.moving === 'true') return null;
            return [...list.querySelectorAll('span')].map(value => value.innerText)";
        let values = self.browser.until("values", values).await?;
        let values = values.as_array().context("a list")?.iter();
        values.map(|value| Ok(value.as_str().context("a text")?.parse()?)).collect()
    }

    /// Ends the browser, unless the page's worker broke.
    ///
    /// # Errors
    /// When it did.
    pub async fn close(self) -> Result<()> {
        // What went wrong inside without anybody noticing.
        let broken = self.attribute("worker-broken", "class").await?;
        ensure!(broken.is_null(), "the worker broke");
        self.browser.close().await
    }
}
